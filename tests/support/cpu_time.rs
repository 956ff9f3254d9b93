//! CPU time of programs and threads, which does not depend on the load of the machine.

use std::io::Read as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The unit of CPU time in /proc: 10 ms on Linux.
const TICK: Duration = Duration::from_millis(10);

/// Runs `work` on this thread and returns the CPU time that the thread used.
pub fn measure_on_thread<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_cpu_time();
    let done = work();
    (done, thread_cpu_time().saturating_sub(before))
}

fn thread_cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says so");
    let spent = stat.split_whitespace().next().expect("nanoseconds");
    Duration::from_nanos(spent.parse().expect("a number"))
}

/// Runs a program to its end and returns its output and CPU time.
pub fn run_and_measure(command: &mut Command) -> (Output, Duration) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut errors = child.stderr.take().expect("a pipe");
    let reads = std::thread::spawn(move || errors.read_to_end(&mut stderr).map(|_| stderr));
    child.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("it is read");
    let stderr = reads.join().expect("no panic").expect("it is read");
    // A process that has ended but was not waited for still has its counters.
    let spent = loop {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is ours");
        // The name of the program may contain any character.
        let fields =
            stat.rsplit(')').next().expect("fields").split_whitespace().collect::<Vec<_>>();
        if fields[0] == "Z" {
            let ticks = |field: usize| fields[field].parse::<u32>().expect("a number");
            break TICK * (ticks(11) + ticks(12));
        }
        std::thread::yield_now();
    };
    let status = child.wait().expect("it is ours");
    (Output { status, stdout, stderr }, spent)
}
