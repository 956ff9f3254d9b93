//! A day of a small cluster, recommended for in both modes, against the same day worked out by hand.

mod cast;
mod sides;

use jiff::Timestamp;

use crate::storage::objects::defined;
use crate::support::fleet::{self, end_controllers};
use crate::support::{Bed, Usage, tier};
use cast::{Cast, MEBIBYTE};
use sides::Sides;

/// Neither midnight nor a full hour.
const MORNING: i64 = 1_772_444_833;
const MINUTES: i64 = 60;

/// 26 hours, by tens of minutes in deep and by half hours in the gate: the windows of memory peaks roll over. After each part the statuses and checkpoints of all VPAs are
/// compared to the digit, whatever kind their target is and whatever their policies say.
#[tokio::test]
async fn a_day_of_every_kind_of_target_is_right_to_the_digit() {
    let Some(bed) = Bed::private().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let usage = Usage::serve(&bed).await;
    let namespace = bed.namespace("day").await;
    end_controllers(&bed).await;
    let client = bed.client();
    let mut cast = Cast::new(&namespace);
    fleet::send(&client, [fleet::create_definition()]).await;
    cast.create(&client).await;
    // The first samples are a moment older than the first pass.
    usage.show(at(MORNING), cast.samples(MORNING).iter().map(cast::Shown::sample));
    let mut sides = Sides::start(&bed, usage, MORNING).await;

    sides.begin(&cast).await;
    sides.compare(&cast, "after the first pass").await;
    live(&mut sides, &cast, 10).await;
    sides.compare(&cast, "after ten minutes").await;
    live(&mut sides, &cast, 350).await;
    sides.compare(&cast, "after six hours").await;

    let killed = sides.now() - 100;
    let pod = cast.kill(&client, "deployment", "main", killed).await;
    sides.expect_kill("deployment", &pod, "main", killed, cast::REQUEST);
    sides.steps_until_kills(&cast).await;
    sides.compare(&cast, "after a kill for lack of memory").await;
    live(&mut sides, &cast, 120).await;
    sides.compare(&cast, "two hours after the kill").await;

    let killed = sides.now() - 7;
    let pod = cast.kill(&client, "statefulset", "log", killed).await;
    sides.expect_kill("statefulset", &pod, "log", killed, cast::REQUEST);
    sides.steps_until_kills(&cast).await;
    sides.compare(&cast, "after a kill where a policy says what it counts for").await;

    // A pod is replaced, and a workload loses all of its pods for two hours.
    let gone = cast.replace(&client, "replicaset").await;
    sides.forget("replicaset", &gone);
    for gone in cast.remove_all(&client, "daemonset").await {
        sides.forget("daemonset", &gone);
    }
    sides.see_pods(cast.pods()).await;
    sides.steps(&cast, MINUTES, 3).await;
    sides.compare(&cast, "while a workload has no pods").await;
    live(&mut sides, &cast, 120).await;
    sides.compare(&cast, "after two hours without pods").await;
    cast.bring_back(&client, "daemonset").await;
    sides.see_pods(cast.pods()).await;
    live(&mut sides, &cast, 10).await;
    sides.compare(&cast, "with pods again").await;

    sides.restart_ours().await;
    sides.compare(&cast, "after a graceful restart").await;
    live(&mut sides, &cast, 240).await;
    sides.compare(&cast, "four hours after the restart").await;

    let policy = cast::Policy { max: (Some(60), Some(300 * MEBIBYTE)), ..cast::Policy::of("*") };
    let generation = cast.change_policy(&client, "job", vec![policy]).await;
    sides.steps_until_generation(&cast, "job", generation).await;
    sides.compare(&cast, "under another policy").await;

    let left = (MORNING + 26 * 60 * MINUTES - sides.now()) / MINUTES;
    live(&mut sides, &cast, left).await;
    sides.compare(&cast, "at the end of the day").await;
    sides.stop().await;
}

/// So many minutes, of which the last step takes what is left.
async fn live(sides: &mut Sides, cast: &Cast, minutes: i64) {
    let step = tier::cases(30, 10);
    let mut left = minutes;
    while left > 0 {
        sides.steps(cast, left.min(step) * MINUTES, 1).await;
        left -= step;
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}
