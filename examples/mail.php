<?php

declare(strict_types=1);

function post(string $path, array $body): ?array
{
    $url = (getenv('SPINDLE_URL') ?: 'http://127.0.0.1:7420') . "/api/v1/$path";
    $answer = file_get_contents($url, context: stream_context_create(['http' => [
        'method' => 'POST',
        'header' => 'Content-Type: application/json',
        'content' => json_encode($body, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE),
        'ignore_errors' => true, // the body of an error says what is wrong
    ]]));
    $status = (int) substr($http_response_header[0] ?? '', 9, 3);
    if ($answer === false || $status >= 400) {
        throw new RuntimeException($answer ?: "no answer from $url", $status);
    }
    return $status === 204 ? null : json_decode($answer, true, flags: JSON_THROW_ON_ERROR);
}

function send(array $mail): array
{
    if (!str_contains($mail['to'], '@')) {
        throw new InvalidArgumentException("no address: {$mail['to']}");
    }
    return ['sent_to' => $mail['to']];
}

function work(): void
{
    // Ends after a second without a job; a service would ask again, with wait_s up to 300.
    while ($job = post('lease', ['queues' => ['mail'], 'wait_s' => 1])) {
        try {
            [$outcome, $report] = ['complete', ['result' => send($job['payload'])]];
        } catch (Throwable $error) { // retried after a backoff
            [$outcome, $report] = ['fail', ['message' => substr($error->getMessage(), 0, 4096)]];
        }
        try {
            post("leases/{$job['lease_token']}/$outcome", $report);
        } catch (RuntimeException $error) {
            if (!in_array($error->getCode(), [409, 410], true)) {
                throw $error; // else the lease has ended: the job is no longer ours
            }
        }
    }
}

if ($argc === 3 && $argv[1] === 'submit') {
    echo post('jobs', ['queue' => 'mail', 'payload' => ['to' => $argv[2]]])['id'], PHP_EOL;
} elseif ($argc === 2 && $argv[1] === 'work') {
    work();
} else {
    fwrite(STDERR, 'usage: mail.php submit ADDRESS | mail.php work' . PHP_EOL);
    exit(2);
}
