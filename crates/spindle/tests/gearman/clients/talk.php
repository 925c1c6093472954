<?php
// A worker and a client over the gearman extension. See main.rs for what they do and print.

[, $role, $host, $port, $prefix] = $argv;
echo 'version: php-gearman ', phpversion('gearman'), ' over libgearman ', gearman_version(), "\n";

if ($role === 'worker') {
    $worker = new GearmanWorker();
    $worker->addServer($host, (int) $port);
    $worker->addFunction("$prefix-reverse", fn($job) => strrev($job->workload()));
    $worker->addFunction("$prefix-steps", function ($job) {
        $job->sendStatus(1, 2);
        $job->sendData('part');
        return 'end';
    });
    $worker->addFunction("$prefix-boom", function ($job) {
        $job->sendException('boom');
    });
    echo "ready\n";
    while (true) {
        $worker->work();
    }
}

$own = $argv[5];
$client = new GearmanClient();
$client->addServer($host, (int) $port);
$client->enableExceptionHandler();

do {
    $result = $client->doNormal("$prefix-reverse", 'hello');
} while ($client->returnCode() === GEARMAN_WORK_DATA);
echo "foreground: $result\n";

$handle = $client->doBackground("$prefix-reverse", 'hello');
for ($tries = 0; $tries < 1000 && $client->jobStatus($handle)[0]; $tries++) {
    usleep(10000);
}
echo 'background: ', $client->jobStatus($handle)[0] ? 'not done' : 'done', "\n";

$heard = [];
$client->setStatusCallback(function ($task) use (&$heard) {
    $heard[] = $task->taskNumerator() . '/' . $task->taskDenominator();
});
foreach (['setDataCallback', 'setCompleteCallback', 'setExceptionCallback'] as $set) {
    $client->$set(function ($task) use (&$heard) {
        $heard[] = $task->data();
    });
}
foreach (['steps' => 'steps', 'boom' => 'exception'] as $function => $told) {
    $heard = [];
    $client->addTask("$prefix-$function", 'hello');
    $client->runTasks();
    echo "$told: ", implode(' ', $heard), "\n";
}

$client->doLowBackground($own, 'low');
$client->doBackground($own, 'normal');
$client->doHighBackground($own, 'high');
echo "priorities: sent\n";
$one = $client->doBackground($own, 'first', 'u');
$two = $client->doBackground($own, 'second', 'u');
echo 'unique: ', $one === $two ? 'one' : 'two', "\n";
