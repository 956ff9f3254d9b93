//! Schemas that change while a process runs, and names that Docker gave.

use super::*;

fn schema(job: &str, containers: u64) -> Schema {
    Schema {
        usage: Usage {
            cpu: Fact::assumed(CPU.into()),
            memory: Fact::assumed(MEMORY.into()),
            job: Fact::found(Some(job.into())),
            path: None,
            namespace: Fact::found("namespace".into()),
            pod: Fact::found("pod".into()),
            container: Fact::found("container".into()),
            containers,
            sources: Vec::new(),
        },
        states: Some(States { namespace: "namespace".into(), ..States::default() }),
        recorded: Recorded::Absent,
        pace: Fact::found(Pace::default()),
        dialect: Dialect::PromQl,
        replicas: Vec::new(),
        clusters: Vec::new(),
        matchers: Matchers::default(),
    }
}

#[test]
fn what_a_server_lacks_for_a_while_stays_as_it_was_known_before() {
    let before = schema("kubelet", 7);
    let assumed = Fact::assumed(Pace::default());
    let young = Schema { states: None, pace: assumed.clone(), ..schema("cadvisor", 3) };
    let both = young.or_as_before(&before);
    assert_eq!(both.usage.job.value.as_deref(), Some("cadvisor"), "what is there is new");
    assert_eq!((&both.states, &both.pace), (&before.states, &before.pace));
    let empty = Schema { pace: assumed, ..schema("any", 0) };
    assert_eq!(empty.or_as_before(&before), before);
    assert!(before.has_same_names(&schema("kubelet", 9)));
    assert!(!before.has_same_names(&both));
    assert!(!before.has_same_names(&Schema { states: None, ..before.clone() }));
}

#[test]
fn names_of_docker_are_understood() {
    for (name, container) in [
        ("app", "app"),
        ("k8s_app_web-7d5f9c4b6d-x2x4z_shop_0a1b_0", "app"),
        ("k8s_POD_web-7d5f9c4b6d-x2x4z_shop_0a1b_0", "POD"),
        ("k8s-app", "k8s-app"),
    ] {
        assert_eq!(container_name(name), container);
    }
}
