<?php
// A client of jobd and its master: php client.php ADDRESS PASSWORD TYPE [DATA]
// Prints the answer's data as JSON. An error goes to standard error, with exit code 1.

[, $address, $password, $type] = $argv;
$data = json_decode($argv[4] ?? '{}');

const EOT = "\4";
const REQUEST = 0;
const RESPONSE = 1;
const PING = 2;
const PONG = 3;

$socket = stream_socket_client("tcp://$address", $code, $reason, 10);
if (!$socket) {
    fwrite(STDERR, "$reason\n");
    exit(2);
}
stream_set_timeout($socket, 60);

function send($socket, array $message): void
{
    fwrite($socket, json_encode($message) . EOT);
}

$no = random_int(1, 1000);
send($socket, [REQUEST, ['no' => $no, 'type' => $type, 'data' => $data, 'password' => $password]]);

while (($text = stream_get_line($socket, 1 << 26, EOT)) !== false && $text !== '') {
    $message = json_decode($text, true, 512, JSON_THROW_ON_ERROR);
    if ($message[0] === PING) {
        send($socket, [PONG]);
    } elseif ($message[0] === RESPONSE && in_array($message[1]['no'], [$no, 0], true)) {
        if (isset($message[1]['error'])) {
            fwrite(STDERR, $message[1]['error'] . "\n");
            exit(1);
        }
        echo json_encode($message[1]['data']), "\n";
        exit(0);
    }
}
fwrite(STDERR, "the connection ended without an answer\n");
exit(2);
