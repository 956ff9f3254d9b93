//! Runs the whole day, which takes minutes. `cargo xtask record day` stores the exported metrics for the gate.

use super::{all_pods_get_what_they_need, check_alerts, check_boards, recording, script::run};
use crate::support::upstream_recording::is_recording;

/// `PLIMSOLL_PICTURES=FOLDER` keeps the rendered boards; those in docs/pictures were made this way.
#[tokio::test]
async fn pods_alerts_and_boards_are_as_expected_on_a_day_with_the_real_roles() {
    let Some(day) = Box::pin(run()).await else { return };
    all_pods_get_what_they_need(&day);
    check_alerts(&day).await;
    check_boards(&day).await;
    if is_recording() {
        recording::write(&day);
    }
}
