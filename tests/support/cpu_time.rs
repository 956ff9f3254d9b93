//! Owns what a program has cost: the CPU time that it used, which is the same on a machine that is busy.

use std::io::Read as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How the kernel counts CPU time: Linux shows hundredths of a second to everybody.
const TICK: Duration = Duration::from_millis(10);

/// Does some work on this thread, and answers with the CPU time that the thread used for it.
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

/// Runs a program to its end, and answers what it said and the CPU time that it used.
pub fn run_and_measure(command: &mut Command) -> (Output, Duration) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut errors = child.stderr.take().expect("a pipe");
    let reads = std::thread::spawn(move || errors.read_to_end(&mut stderr).map(|_| stderr));
    child.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("it is read");
    let stderr = reads.join().expect("no panic").expect("it is read");
    // What has ended and was not waited for is still counted.
    let spent = loop {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it is ours");
        // The name of the program may have anything in it.
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
