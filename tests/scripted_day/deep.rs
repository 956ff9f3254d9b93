//! The day lived in full, which takes minutes. `cargo xtask record day` keeps what the roles exported for the gate.

use super::{
    alerts_wait_and_fire, all_pods_get_what_they_need, boards_show_it, recording, script::run,
};
use crate::support::upstream_recording::is_recording;

/// `PLIMSOLL_PICTURES=FOLDER` keeps the pictures: those in docs/pictures are such ones.
#[tokio::test]
async fn on_a_day_that_the_real_roles_live_pods_alerts_and_boards_are_as_they_should_be() {
    let Some(day) = run().await else { return };
    all_pods_get_what_they_need(&day);
    alerts_wait_and_fire(&day).await;
    boards_show_it(&day).await;
    if is_recording() {
        recording::write(&day);
    }
}
