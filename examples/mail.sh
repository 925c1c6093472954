#!/bin/sh
set -eu

case "${1-}" in
submit)
    jq -nc --arg to "${2:?submit ADDRESS}" '{$to}' | spindle add mail - --type json
    ;;
work) # runs "mail.sh send" for each job; a service would leave out --drain
    spindle work mail --drain -- "$0" send
    ;;
send) # standard input is the payload, standard output the result; exit 1 means: try again later
    to=$(jq -r .to)
    case $to in
    *@*) jq -nc --arg to "$to" '{sent_to: $to}' ;;
    *) echo "no address: $to" >&2 && exit 1 ;;
    esac
    ;;
*) echo "usage: mail.sh submit ADDRESS | mail.sh work" >&2 && exit 2 ;;
esac
