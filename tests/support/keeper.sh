# Keeps the processes of one bed: sh keeper.sh DIR, commands on standard input, news on standard output.
# The end of the input is the end of everything, however the writer of it died: processes are killed, newest first
# (so an API server goes before its etcd), and DIR is removed.
dir=$1
groups=

start() {
    name=$1
    shift
    # Each process leads a session of its own: a Ctrl-C in the terminal does not reach it, and its children die with it.
    setsid sh -c '
        name=$1 log=$2
        shift 2
        "$@" >>"$log" 2>&1 </dev/null &
        echo "started $name $!"
        wait $!
        echo "exited $name $?"
    ' keeper "$name" "$dir/$name.log" "$@" &
    groups="$! $groups"
}

while IFS= read -r line; do
    eval "$line"
done

for group in $groups; do
    # The first is for a process that is about to lead its session but does not yet.
    kill -s KILL "$group" 2>/dev/null
    kill -s KILL -- "-$group" 2>/dev/null
done
# The kernel takes a moment to terminate them, and a dying process may still write. Wait two seconds at most: without a
# process that reaps orphans, a group of zombies never disappears.
left=40
for group in $groups; do
    while [ "$left" -gt 0 ] && kill -s 0 -- "-$group" 2>/dev/null; do
        left=$((left - 1))
        sleep 0.05
    done
done
rm -rf "$dir" 2>/dev/null || { sleep 0.5 && rm -rf "$dir"; }
rmdir "$(dirname "$dir")" 2>/dev/null
exit 0
