//! Both recommenders run live with hundreds of workloads. `cargo xtask record recommender` records upstream's results
//! here.

use super::{DAYS, SHORT, live};

#[tokio::test]
async fn upstreams_recommender_and_plimsoll_agree_for_days_of_random_workloads() {
    live::run(&DAYS, 310).await;
}

#[tokio::test]
async fn upstreams_recommender_and_plimsoll_agree_with_short_windows() {
    live::run(&SHORT, 120).await;
}
