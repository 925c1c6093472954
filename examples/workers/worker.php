<?php

// A task that is submitted and a worker that does it, with nothing but what PHP brings (its command
// line has the extension pcntl): heartbeats, retries, a stop that finishes what runs, and a server
// that may be away meanwhile.
//
//   php worker.php submit ADDRESS [SECONDS]   submits a mail that takes so long to send
//   php worker.php work                       sends mails until SIGTERM or SIGINT
//
// The server is SPINDLE_URL, else http://127.0.0.1:7420, and SPINDLE_TOKEN says who asks.

declare(strict_types=1);

/** The server is away or busy: the same request may succeed later. */
class Away extends RuntimeException
{
}

/** The server has refused a request; the code is its status. */
class Refusal extends RuntimeException
{
    /** The lease has ended: the job was cancelled, deleted, or given to another worker. */
    public function isLost(): bool
    {
        return in_array($this->getCode(), [409, 410], true);
    }
}

/** Sends one request. The answer's JSON, or null if there is no content. */
function post(string $path, array $body, ?string $idempotencyKey = null): ?array
{
    $url = (getenv('SPINDLE_URL') ?: 'http://127.0.0.1:7420') . "/api/v1/$path";
    $headers = ['Content-Type: application/json'];
    if ($idempotencyKey !== null) {
        $headers[] = "Idempotency-Key: $idempotencyKey";
    }
    if ($token = getenv('SPINDLE_TOKEN')) {
        $headers[] = "Authorization: Bearer $token";
    }
    $answer = @file_get_contents($url, context: stream_context_create(['http' => [
        'method' => 'POST',
        'header' => $headers,
        'content' => json_encode((object) $body, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE),
        'timeout' => 30, // a lease waits 5 s for a job; every other answer comes sooner
        'ignore_errors' => true, // the body of an error says what is wrong
    ]]));
    $status = (int) substr($http_response_header[0] ?? '', 9, 3);
    if ($answer === false || $status === 0) {
        throw new Away("no answer from $url");
    }
    if ($status === 429 || $status >= 500) {
        throw new Away("status $status: $answer");
    }
    if ($status >= 400) {
        throw new Refusal("status $status: $answer", $status);
    }
    return $status === 204 ? null : json_decode($answer, true, flags: JSON_THROW_ON_ERROR);
}

/** Repeats a request, with growing pauses, until the server has answered or time is up. */
function persist(callable $request, float $seconds = 60): ?array
{
    $deadline = microtime(true) + $seconds;
    for ($pause = 0.1; ; $pause = min(2 * $pause, 5)) {
        try {
            return $request();
        } catch (Away $error) {
            if (microtime(true) + $pause > $deadline) {
                throw $error;
            }
            pause($pause);
        }
    }
}

/** Sleeps for so long, whatever signals come meanwhile. */
function pause(float $seconds): void
{
    $deadline = microtime(true) + $seconds;
    while (($left = $deadline - microtime(true)) > 0) {
        usleep((int) ceil(min($left, 0.05) * 1e6));
    }
}

/** Adds one job, however often it is sent: the key tells the server that it is the same. */
function submit(string $address, float $seconds): void
{
    $job = [
        'queue' => 'mail',
        'payload' => ['to' => $address, 'seconds' => $seconds],
        'ttr_ms' => 3000, // how soon the job of a worker that was killed runs again
        'fails_max' => 3, // two retries, after half a second and a second
        'backoff' => ['base_ms' => 500, 'factor' => 2],
    ];
    $key = bin2hex(random_bytes(16));
    echo persist(fn () => post('jobs', $job, $key))['id'], PHP_EOL;
}

/** The task. It ends early when its job is no longer this worker's. */
function send(array $mail, Heart $heart): array
{
    if (!str_contains($mail['to'], '@')) {
        throw new InvalidArgumentException("no address: {$mail['to']}");
    }
    $deadline = microtime(true) + $mail['seconds'];
    while (microtime(true) < $deadline && !$heart->isLost) {
        pause(0.05);
    }
    return ['sent_to' => $mail['to']];
}

/** Extends a lease at each third of its time. PHP has one thread, so a timer interrupts the task. */
class Heart
{
    public bool $isLost = false;

    public function __construct(private readonly array $job)
    {
        pcntl_signal(SIGALRM, $this->beat(...));
        $this->next();
    }

    public function stop(): void
    {
        pcntl_alarm(0);
    }

    private function next(): void
    {
        // Whole seconds are all that the timer knows: leases of less than a second and a half are too short.
        pcntl_alarm(max(1, intdiv($this->job['lease_ms'], 3000)));
    }

    private function beat(): void
    {
        try {
            post("leases/{$this->job['lease_token']}/extend", ['ttr_ms' => $this->job['lease_ms']]);
        } catch (Refusal $refusal) {
            $this->isLost = $refusal->isLost();
        } catch (Away) {
            // The next beat tries again.
        }
        if (!$this->isLost) {
            $this->next();
        }
    }
}

/** Does one job, and reports its end until the server knows it. */
function perform(array $job): void
{
    $heart = new Heart($job);
    try {
        [$outcome, $report] = ['complete', ['result' => send($job['payload'], $heart)]];
    } catch (Throwable $error) { // the server tries the job again after its backoff
        $report = ['message' => substr($error->getMessage(), 0, 4096), 'code' => substr($error::class, 0, 64)];
        $outcome = 'fail';
    } finally {
        $heart->stop();
    }
    if ($heart->isLost) {
        fwrite(STDERR, "job {$job['id']} is no longer ours" . PHP_EOL);
        return;
    }
    try {
        persist(fn () => post("leases/{$job['lease_token']}/$outcome", $report));
    } catch (Refusal | Away $error) {
        // 409 may also say that an earlier report arrived, and only its answer was lost.
        fwrite(STDERR, "job {$job['id']}: $outcome: {$error->getMessage()}" . PHP_EOL);
    }
}

function work(): void
{
    $isStopping = false;
    pcntl_async_signals(true);
    foreach ([SIGTERM, SIGINT] as $signal) {
        pcntl_signal($signal, function () use (&$isStopping): void {
            $isStopping = true;
        });
    }
    while (!$isStopping) {
        try {
            // Not ended by the stop: a job that comes at that moment is done, too.
            $job = post('lease', ['queues' => ['mail'], 'wait_s' => 5]);
            if ($job !== null) {
                perform($job);
            }
        } catch (Away $error) {
            fwrite(STDERR, "{$error->getMessage()}; trying again" . PHP_EOL);
            pause(1);
        }
    }
}

if (($argc === 3 || $argc === 4) && $argv[1] === 'submit') {
    submit($argv[2], (float) ($argv[3] ?? 0));
} elseif ($argc === 2 && $argv[1] === 'work') {
    work();
} else {
    fwrite(STDERR, 'usage: worker.php submit ADDRESS [SECONDS] | worker.php work' . PHP_EOL);
    exit(2);
}
