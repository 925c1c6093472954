<?php
// A launcher: php launcher.php FOLDER ID. Every third job fails.

[, $folder, $id] = $argv;
file_put_contents("$folder/runs", "$id\n", FILE_APPEND | LOCK_EX);
echo "job $id in ", getenv('APP_ENV'), "\n";
if ($id % 3 === 0) {
    fwrite(STDERR, "no luck with $id\n");
    exit(7);
}
