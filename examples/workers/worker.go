// A task that is submitted and a worker that does it, with nothing but Go's standard library:
// heartbeats, retries, a stop that finishes what runs, and a server that may be away meanwhile.
//
//	go run worker.go submit ADDRESS [SECONDS]   submits a mail that takes so long to send
//	go run worker.go work                       sends mails until SIGTERM or SIGINT
//
// The server is SPINDLE_URL, else http://127.0.0.1:7420, and SPINDLE_TOKEN says who asks.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type object map[string]any

// refusal is an answer of the server that is no success.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.text) }

// A lease waits 5 s for a job; every other answer comes sooner.
var client = http.Client{Timeout: 30 * time.Second}

// post sends one request. The answer is decoded unless it is nil or there is no content.
func post(ctx context.Context, path, idempotencyKey string, body, answer any) error {
	url := os.Getenv("SPINDLE_URL")
	if url == "" {
		url = "http://127.0.0.1:7420"
	}
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, "POST", url+"/api/v1/"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if idempotencyKey != "" {
		request.Header.Set("Idempotency-Key", idempotencyKey)
	}
	if token := os.Getenv("SPINDLE_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		return refusal{response.StatusCode, string(text)}
	}
	if answer == nil || len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// mayPass says whether the same request may succeed later: the server is away or busy.
func mayPass(err error) bool {
	var refused refusal
	return err != nil && (!errors.As(err, &refused) || refused.status == 429 || refused.status >= 500)
}

// persist repeats a request, with growing pauses, until the server has answered or time is up.
func persist(limit time.Duration, request func() error) error {
	until := time.Now().Add(limit)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := request()
		if !mayPass(err) || time.Now().Add(pause).After(until) {
			return err
		}
		time.Sleep(pause)
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

// submit adds one job, however often it is sent: the key tells the server that it is the same.
func submit(address string, seconds float64) error {
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	job := object{
		"queue":     "mail",
		"payload":   object{"to": address, "seconds": seconds},
		"ttr_ms":    3000, // how soon the job of a worker that was killed runs again
		"fails_max": 3,    // two retries, after half a second and a second
		"backoff":   object{"base_ms": 500, "factor": 2},
	}
	var submitted struct{ ID int64 }
	err := persist(time.Minute, func() error {
		return post(context.Background(), "jobs", fmt.Sprintf("%x", key), job, &submitted)
	})
	if err == nil {
		fmt.Println(submitted.ID)
	}
	return err
}

// send is the task. It ends early when its job is no longer this worker's.
func send(ctx context.Context, payload []byte) (object, error) {
	var mail struct {
		To      string
		Seconds float64
	}
	if err := json.Unmarshal(payload, &mail); err != nil {
		return nil, err
	}
	if !strings.Contains(mail.To, "@") {
		return nil, fmt.Errorf("no address: %s", mail.To)
	}
	select {
	case <-time.After(time.Duration(mail.Seconds * float64(time.Second))):
		return object{"sent_to": mail.To}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type leased struct {
	ID         int64
	LeaseToken string `json:"lease_token"`
	LeaseMs    int64  `json:"lease_ms"`
	Payload    json.RawMessage
}

// keepLease extends the lease at each third of its time, until ctx is done. When the server says
// that the lease has ended (the job was cancelled, deleted, or given to another worker) it calls lose.
func keepLease(ctx context.Context, job leased, lose func()) {
	beat := time.NewTicker(time.Duration(job.LeaseMs) * time.Millisecond / 3)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		err := post(ctx, "leases/"+job.LeaseToken+"/extend", "", object{"ttr_ms": job.LeaseMs}, nil)
		if isLost(err) {
			lose()
			return
		}
	}
}

func isLost(err error) bool {
	var refused refusal
	return errors.As(err, &refused) && (refused.status == 409 || refused.status == 410)
}

// perform does one job, and reports its end until the server knows it.
func perform(job leased) {
	ctx, lose := context.WithCancel(context.Background())
	beating, stopBeating := context.WithCancel(ctx)
	go keepLease(beating, job, lose)
	result, err := send(ctx, job.Payload)
	stopBeating()
	isLostAlready := ctx.Err() != nil
	lose()
	if isLostAlready {
		log.Printf("job %d is no longer ours", job.ID)
		return
	}
	outcome, report := "complete", object{"result": result}
	if err != nil { // the server tries the job again after its backoff
		outcome, report = "fail", object{"message": fmt.Sprintf("%.4096s", err), "code": "send"}
	}
	err = persist(time.Minute, func() error {
		return post(context.Background(), "leases/"+job.LeaseToken+"/"+outcome, "", report, nil)
	})
	if err != nil {
		// 409 may also say that an earlier report arrived, and only its answer was lost.
		log.Printf("job %d: %s: %s", job.ID, outcome, err)
	}
}

func work() error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	for stop.Err() == nil {
		// Not ended by the stop: a job that comes at that moment is done, too.
		var job leased
		err := post(context.Background(), "lease", "", object{"queues": []string{"mail"}, "wait_s": 5}, &job)
		switch {
		case mayPass(err):
			log.Printf("%s; trying again", err)
			time.Sleep(time.Second)
		case err != nil:
			return err
		case job.LeaseToken != "":
			perform(job)
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	var err error
	switch args := os.Args[1:]; {
	case (len(args) == 2 || len(args) == 3) && args[0] == "submit":
		seconds := 0.0
		if len(args) == 3 {
			seconds, err = strconv.ParseFloat(args[2], 64)
		}
		if err == nil {
			err = submit(args[1], seconds)
		}
	case len(args) == 1 && args[0] == "work":
		err = work()
	default:
		err = errors.New("usage: worker submit ADDRESS [SECONDS] | worker work")
	}
	if err != nil {
		log.Fatal(err)
	}
}
