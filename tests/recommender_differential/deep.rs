//! Both recommenders run live with hundreds of workloads. `cargo xtask record recommender` records upstream's results
//! here.

use super::{DAYS, SHORT, live};

#[tokio::test]
async fn upstreams_recommender_and_ours_say_the_same_through_days_of_random_workloads() {
    live::run(&DAYS, 310).await;
}

#[tokio::test]
async fn upstreams_recommender_and_ours_say_the_same_with_short_windows_and_other_percentiles() {
    live::run(&SHORT, 120).await;
}
