//! With upstream's unchanged roles the updater works; what it may not do beyond them is named.

use super::stage::{self, deployment, pods, uids, vpa};
use crate::support::wait;

#[tokio::test]
async fn an_updater_that_may_not_write_on_vpas_remembers_by_itself() {
    let Some((bed, namespace)) = stage::place("rights").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let running = stage::start_with(
        bed.client(),
        &namespace,
        &["--leader-elect=false"],
        plimsoll::clock::Clock::wall(),
        |_| {},
    )
    .await;
    wait::until("one was replaced", || async {
        let now = uids(&pods(&bed.client(), &namespace, "web").await);
        (before.difference(&now).count() == 1).then_some(())
    })
    .await;
    running.stop().await;
}
