#!/bin/sh
# A worker without Python: it runs the task "shout" of one queue, which returns its word in capitals.
#
#     forebay queues create words --url sqlite:///jobs.db
#     forebay server --url sqlite:///jobs.db &
#     SERVER=http://127.0.0.1:8080 QUEUE=words sh worker.sh
#
# It ends when the server does. It claims again at once: the server holds the request until there is a job (long poll).
set -eu

post() { curl --silent --fail --show-error "$SERVER$1" --data "$2"; }
text() { printf '%s' "$claimed" | sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }

while claimed=$(post /v1/claim "{\"queues\": [\"$QUEUE\"], \"tasks\": [\"shout\"]}"); do
    case $claimed in *'"jobs":[]'*) continue ;; esac
    id=$(text id)
    lease=$(text lease)
    word=$(printf '%s' "$claimed" | sed -n 's/.*"args":\["\([A-Za-z ]*\)"\].*/\1/p')
    if [ -n "$word" ]; then
        loud=$(printf '%s' "$word" | tr '[:lower:]' '[:upper:]')
        post "/v1/jobs/$id/ack" "{\"lease\": \"$lease\", \"result\": \"$loud\"}"
    else
        post "/v1/jobs/$id/nack" "{\"lease\": \"$lease\", \"error\": \"not a word\", \"requeue\": false}"
    fi
    echo
done
