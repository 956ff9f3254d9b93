//! The loop of `--watch`.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::cli::{Exit, output::CliError};

/// The pause after a reading that took longer than the interval.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Reads every interval and passes each reading to `show`, failed ones too, until `stop`, which also ends a
/// reading, or until nothing can be shown any more.
pub async fn repeat<R, E>(
    interval: Duration,
    stop: impl Future<Output = Exit>,
    mut read: impl AsyncFnMut() -> Result<R, E>,
    mut show: impl FnMut(Result<R, E>) -> Result<(), CliError>,
) -> Result<Exit, CliError> {
    let mut stop = pin!(stop);
    loop {
        let started = Instant::now();
        let reading = tokio::select! {
            biased;
            exit = &mut stop => return Ok(exit),
            reading = read() => reading,
        };
        show(reading)?;
        let next = (started + interval).max(Instant::now() + SHORTEST_PAUSE);
        tokio::select! {
            biased;
            exit = &mut stop => return Ok(exit),
            () = sleep_until(next) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, future};

    use tokio::time::sleep;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    /// Times in seconds at which readings start, and what is shown.
    async fn readings(
        length: u64,
        last: u64,
        results: &[Result<i32, &str>],
    ) -> (Vec<u64>, Vec<String>) {
        let (start, started, shown) =
            (Instant::now(), RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let stop = async {
            sleep(Duration::from_secs(last)).await;
            Exit::Interrupted
        };
        let read = async || {
            let turn = started.borrow().len();
            started.borrow_mut().push(start.elapsed().as_secs());
            sleep(Duration::from_secs(length)).await;
            results[turn % results.len()]
        };
        let show = |reading: Result<i32, &str>| {
            shown.borrow_mut().push(format!("{reading:?}"));
            Ok(())
        };
        let exit = repeat(INTERVAL, stop, read, show).await.expect("a signal ends it");
        assert_eq!(exit, Exit::Interrupted);
        assert_eq!(start.elapsed().as_secs(), last, "it ends at once");
        (started.into_inner(), shown.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn readings_start_every_interval_and_go_on_after_a_failure() {
        let (started, shown) = readings(2, 18, &[Ok(1), Err("refused"), Ok(2)]).await;
        assert_eq!(started, [0, 5, 10, 15]);
        assert_eq!(shown, ["Ok(1)", "Err(\"refused\")", "Ok(2)", "Ok(1)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reading_is_followed_by_a_pause_and_ended_by_a_signal() {
        let (started, shown) = readings(9, 25, &[Ok(1)]).await;
        assert_eq!(started, [0, 10, 20]);
        assert_eq!(shown.len(), 2, "the third reading had not ended");
    }

    #[tokio::test(start_paused = true)]
    async fn the_loop_ends_when_the_output_is_closed() {
        let mut shown = 0;
        let ended = repeat(
            INTERVAL,
            future::pending(),
            async || Ok::<_, String>(1),
            |_| {
                shown += 1;
                if shown == 3 { Err(CliError::silent()) } else { Ok(()) }
            },
        );
        assert!(ended.await.is_err());
        assert_eq!(shown, 3);
    }
}
