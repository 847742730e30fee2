# Sourced by bash before the command. If retinue was killed before the launcher could tie itself to it, nothing would
# ever end the command: then the pipe that retinue held is closed, and the command does not start.
# The first process of a namespace ties itself to retinue just after it has started us: once it sleeps, that is done.
for ((RETINUE_TRY = 0; RETINUE_TRY < 100; RETINUE_TRY++)); do
    { read -r RETINUE_FIRST </proc/1/stat; } 2>/dev/null || break
    RETINUE_FIRST=${RETINUE_FIRST##*) }
    [ "${RETINUE_FIRST%% *}" = R ] || break
    read -r -t 0.002 -u "$RETINUE_LIFELINE" 2>/dev/null
done
unset RETINUE_TRY RETINUE_FIRST
if read -r -t 0 -u "$RETINUE_LIFELINE" 2>/dev/null; then exit 137; fi
exec {RETINUE_LIFELINE}<&-
unset RETINUE_LIFELINE
if [ -n "${RETINUE_LIMITS+set}" ]; then
    # shellcheck disable=SC2086
    ulimit $RETINUE_LIMITS
    unset RETINUE_LIMITS
    # If the machine runs out of memory, the kernel should kill commands of agents before the user's programs.
    { read -r RETINUE_SCORE </proc/self/oom_score_adj && [ "$RETINUE_SCORE" -lt 500 ] &&
        echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
    unset RETINUE_SCORE
fi
if [ -n "${RETINUE_BASH_ENV+set}" ]; then
    BASH_ENV=$RETINUE_BASH_ENV
    unset RETINUE_BASH_ENV
    [ -r "$BASH_ENV" ] && . "$BASH_ENV"
else
    unset BASH_ENV
fi
