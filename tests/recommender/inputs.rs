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
async fn oom_kills_count_once_wherever_they_are_observed() {
    let Some(fixture) = Fixture::shared().await else { return };
    oom_kills::an_oom_kill_before_the_first_list_counts_once_across_a_restart(&fixture).await;
    oom_kills::an_oom_kill_before_any_sample_gives_a_recommendation(&fixture).await;
    oom_kills::an_eviction_counts_the_usage_of_its_event(&fixture).await;
    oom_kills::a_job_that_ends_before_its_first_sample_keeps_its_bump(&fixture).await;
    oom_kills::local_storage_keeps_an_oom_kill_across_a_restart(&fixture).await;
}

#[tokio::test]
async fn history_follows_the_workload() {
    let Some(fixture) = Fixture::shared().await else { return };
    history_ownership::a_rollout_of_a_deployment_keeps_its_history(&fixture).await;
    history_ownership::a_rollout_of_a_custom_resource_keeps_its_history(&fixture).await;
    history_ownership::a_renamed_vpa_inherits_history_and_one_for_another_workload_does_not(
        &fixture,
    )
    .await;
    history_ownership::the_history_of_a_vpa_created_later_is_loaded_at_once(&fixture).await;
}

#[tokio::test]
async fn usage_comes_from_all_sources_and_small_changes_of_bounds_are_not_written() {
    let Some(fixture) = Fixture::private().await else { return };
    usage_sources::a_native_sidecar_gets_a_recommendation_unless_its_gate_is_disabled(&fixture)
        .await;
    usage_sources::external_metrics_are_used_even_for_a_single_resource(&fixture).await;
    usage_sources::drifting_bounds_are_written_only_in_upstreams_mode(&fixture).await;
    pod_caps::a_pod_is_capped_to_the_largest_node_and_to_a_limit(&fixture).await;
    pod_caps::each_cap_of_a_recommendation_has_its_own_reason(&fixture).await;
}

#[tokio::test]
async fn several_recommenders_do_not_affect_each_other() {
    let Some(fixture) = Fixture::private().await else { return };
    other_recommenders::recommenders_of_two_names_never_touch_each_others_objects(&fixture).await;
    other_recommenders::orphans_are_collected_but_not_in_ignored_namespaces(&fixture).await;
    other_recommenders::only_the_configured_namespace_is_watched(&fixture).await;
    // Last, because it removes the schema of the CRD.
    other_recommenders::a_malformed_vpa_is_skipped_and_reported_and_keeps_its_checkpoint(&fixture)
        .await;
}

#[tokio::test]
async fn identical_namespaces_are_isolated() {
    let Some(fixture) = Fixture::private().await else { return };
    namespace_isolation::a_vpa_affects_no_pods_and_no_history_of_an_identical_namespace(&fixture)
        .await;
}
