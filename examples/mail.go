package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

type object map[string]any

// post returns the status besides the error, because some refusals are no failure of the worker.
func post(path string, body, answer any) (int, error) {
	url := os.Getenv("SPINDLE_URL")
	if url == "" {
		url = "http://127.0.0.1:7420"
	}
	content, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	response, err := http.Post(url+"/api/v1/"+path, "application/json", bytes.NewReader(content))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		problem, _ := io.ReadAll(response.Body)
		return response.StatusCode, fmt.Errorf("%s: %s: %s", path, response.Status, problem)
	}
	if response.StatusCode == http.StatusNoContent {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(response.Body).Decode(answer)
}

func send(payload []byte) (object, error) {
	var mail struct{ To string }
	if err := json.Unmarshal(payload, &mail); err != nil {
		return nil, err
	}
	if !strings.Contains(mail.To, "@") {
		return nil, fmt.Errorf("no address: %s", mail.To)
	}
	return object{"sent_to": mail.To}, nil
}

func work() error {
	for {
		var job struct {
			LeaseToken string `json:"lease_token"`
			Payload    json.RawMessage
		}
		// Ends after a second without a job; a service would ask again, with wait_s up to 300.
		status, err := post("lease", object{"queues": []string{"mail"}, "wait_s": 1}, &job)
		if err != nil || status == http.StatusNoContent {
			return err
		}
		result, err := send(job.Payload)
		outcome, report := "complete", object{"result": result}
		if err != nil { // retried after a backoff
			outcome, report = "fail", object{"message": fmt.Sprintf("%.4096s", err)}
		}
		status, err = post("leases/"+job.LeaseToken+"/"+outcome, report, nil)
		if err != nil && status != http.StatusConflict && status != http.StatusGone {
			return err // 409 or 410: the lease has ended, and the job is no longer ours
		}
	}
}

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 3 && os.Args[1] == "submit":
		var job struct{ ID int64 }
		mail := object{"queue": "mail", "payload": object{"to": os.Args[2]}}
		if _, err := post("jobs", mail, &job); err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID)
	case len(os.Args) == 2 && os.Args[1] == "work":
		if err := work(); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("usage: mail submit ADDRESS | mail work")
	}
}
