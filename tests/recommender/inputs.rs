//! All inputs of the recommender and their effect, on a real control plane.

mod fixture;
mod history_ownership;
mod namespace_isolation;
mod oom_kills;
mod other_recommenders;
mod pod_caps;
mod usage_sources;

use fixture::Fixture;

/// The cases share a testbed with a namespace each. They run one after the other, because usage has one timestamp.
/// Their names are sentences, like the names of tests.
#[tokio::test]
async fn kills_count_once_wherever_they_are_seen() {
    let Some(fixture) = Fixture::shared().await else { return };
    oom_kills::a_kill_before_the_first_list_counts_once_also_after_a_restart(&fixture).await;
    oom_kills::a_kill_before_any_sample_is_recommended_for(&fixture).await;
    oom_kills::an_eviction_counts_what_was_used(&fixture).await;
    oom_kills::a_job_that_ends_before_its_first_sample_keeps_its_bump(&fixture).await;
    oom_kills::a_local_storage_remembers_a_kill_over_a_restart(&fixture).await;
}

#[tokio::test]
async fn history_goes_with_the_workload() {
    let Some(fixture) = Fixture::shared().await else { return };
    history_ownership::a_rollout_of_a_deployment_keeps_its_history(&fixture).await;
    history_ownership::a_deploy_of_a_custom_resource_keeps_its_history(&fixture).await;
    history_ownership::a_vpa_under_another_name_inherits_and_one_for_another_workload_does_not(
        &fixture,
    )
    .await;
    history_ownership::a_vpa_that_comes_later_is_loaded_on_first_sight(&fixture).await;
}

#[tokio::test]
async fn usage_is_taken_from_where_it_is_and_bounds_drift_in_silence() {
    let Some(fixture) = Fixture::private().await else { return };
    usage_sources::a_native_sidecar_is_recommended_for_unless_its_gate_is_shut(&fixture).await;
    usage_sources::external_metrics_are_taken_also_one_alone(&fixture).await;
    usage_sources::drifting_bounds_are_not_written_unless_upstreams_writes_are_wanted(&fixture)
        .await;
    pod_caps::a_pod_is_kept_within_the_largest_node_and_within_a_limit(&fixture).await;
    pod_caps::whatever_holds_a_recommendation_is_told_by_its_own_reason(&fixture).await;
}

#[tokio::test]
async fn neighbours_leave_each_other_alone() {
    let Some(fixture) = Fixture::private().await else { return };
    other_recommenders::recommenders_of_two_names_never_touch_each_others_objects(&fixture).await;
    other_recommenders::orphans_are_collected_but_not_in_ignored_namespaces(&fixture).await;
    other_recommenders::one_namespace_alone_is_looked_after(&fixture).await;
    // Last, because it removes the schema of the CRD.
    other_recommenders::a_malformed_vpa_is_skipped_counted_and_named_and_keeps_its_checkpoint(
        &fixture,
    )
    .await;
}

#[tokio::test]
async fn namespaces_that_look_the_same_are_told_apart() {
    let Some(fixture) = Fixture::private().await else { return };
    namespace_isolation::a_vpa_reaches_neither_pods_nor_histories_of_a_namespace_that_looks_the_same(&fixture)
        .await;
}
