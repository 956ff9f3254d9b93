//! Golden vectors V119 to V134: whole cores, policy limits, and the offending containers of an eviction.

use plimsoll_core::{
    api::{
        ResourceName,
        vpa::{ContainerMode, ContainerPolicy},
    },
    recommender::{
        ResourceAmounts, estimate::Resource, eviction_notice, explanation::Rounding, policy::Cap,
        vpa_settings::integer_cpu_container,
    },
    types::{compat::Compat, quantity::Quantity},
};

use super::{MIB, VpaFixture, minute};

fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

#[test]
fn v119_cpu_is_rounded_up_to_whole_cores() {
    let rounding = Rounding { multiple: 1, humanized: false, whole_cores: true };
    for (millis, cores) in [(8600, "9"), (8100, "9"), (8900, "9"), (8000, "8")] {
        assert_eq!(rounding.quantity(Resource::Cpu, millis).to_string(), cores);
    }
    let bytes = rounding.quantity(Resource::Memory, 200 * MIB);
    assert_eq!(bytes.to_string(), "200Mi");
}

#[test]
fn v120_v121_only_annotated_containers_are_rounded_and_only_if_enabled() {
    let key = "vpa-post-processor.kubernetes.io/app_integerCPU";
    let target = |annotation: &[(&str, &str)], on| {
        let mut subject = VpaFixture::annotated(Compat::Upstream, annotation);
        subject.settings.integer_cpu = on;
        subject.cpu(minute(0), 1000);
        subject.app(minute(0)).target.cpu.expect("has a recommendation").to_string()
    };
    let other = "vpa-post-processor.kubernetes.io/other_integerCPU";
    assert_eq!(target(&[(key, "true")], true), "2");
    assert_eq!(target(&[(key, "true"), (other, "true")], true), "2");
    assert_eq!(target(&[(key, "true")], false), "1168m");
    assert_eq!(target(&[(key, "yes")], true), "1168m");
    assert_eq!(target(&[(other, "true")], true), "1168m");
}

#[test]
fn v122_the_annotation_key_contains_the_container_name() {
    for (annotation, container) in [
        ("vpa-post-processor.kubernetes.io/kafka_integerCPU", Some("kafka")),
        ("vpa-post-processor.kubernetes.io/_integerCPU", None),
        ("vpa-post-processor.kubernetes.io/kafka_integerCP", None),
        ("other.kubernetes.io/kafka_integerCPU", None),
        ("", None),
    ] {
        assert_eq!(integer_cpu_container(annotation), container, "{annotation}");
    }
}

#[test]
fn v123_to_v129_the_policy_caps_and_the_global_maximum_fills_its_gaps() {
    let both = |cpu: &str, memory: &str| ResourceAmounts {
        cpu: (!cpu.is_empty()).then(|| quantity(cpu)),
        memory: (!memory.is_empty()).then(|| quantity(memory)),
    };
    let none = both("", "");
    for (min, max, global, target, lower, upper) in [
        (none, none, none, ("42m", "42Mi"), ("31m", "31Mi"), ("53m", "53Mi")),
        (both("50m", "50Mi"), none, none, ("50m", "50Mi"), ("50m", "50Mi"), ("53m", "53Mi")),
        (none, both("40m", "40Mi"), none, ("40m", "40Mi"), ("31m", "31Mi"), ("40m", "40Mi")),
        (none, none, both("40m", "40Mi"), ("40m", "40Mi"), ("31m", "31Mi"), ("40m", "40Mi")),
        (
            both("35m", "35Mi"),
            none,
            both("50m", "50Mi"),
            ("42m", "42Mi"),
            ("35m", "35Mi"),
            ("50m", "50Mi"),
        ),
        (
            none,
            both("40m", ""),
            both("", "40Mi"),
            ("40m", "40Mi"),
            ("31m", "31Mi"),
            ("40m", "40Mi"),
        ),
        (
            none,
            both("40m", ""),
            both("30m", "30Mi"),
            ("40m", "30Mi"),
            ("31m", "30Mi"),
            ("40m", "30Mi"),
        ),
    ] {
        let cpu = Cap::new(min.cpu, max.cpu, global.cpu);
        let memory = Cap::new(min.memory, max.memory, global.memory);
        for (value, expected) in [("42", target), ("31", lower), ("53", upper)] {
            let held =
                |cap: &Cap, unit| cap.apply(quantity(&format!("{value}{unit}"))).0.to_string();
            assert_eq!((held(&cpu, "m").as_str(), held(&memory, "Mi").as_str()), expected);
        }
    }
}

#[test]
fn v130_without_containers_there_is_no_recommendation() {
    let subject = VpaFixture::new(Compat::Upstream);
    assert_eq!(subject.recommend(minute(0)).containers, []);
}

#[test]
fn a_limit_of_zero_is_no_limit_and_the_maximum_overrides_the_minimum() {
    let value = quantity("42m");
    let zero = Some(quantity("0"));
    assert_eq!(Cap::new(zero, zero, None).apply(value).0, value);
    // A maximum of zero in the policy still overrides the global one.
    assert_eq!(Cap::new(None, zero, Some(quantity("1m"))).apply(value).0, value);
    let crossed = Cap::new(Some(quantity("60m")), Some(quantity("50m")), None);
    assert_eq!(crossed.apply(value).0, quantity("50m"));
}

#[test]
fn containers_in_mode_off_and_uncontrolled_resources_are_excluded() {
    let mut subject = VpaFixture::new(Compat::Upstream);
    subject.register_container("app", minute(0));
    subject.register_container("proxy", minute(0));
    subject.directives.policies = vec![
        ContainerPolicy {
            container_name: "proxy".into(),
            mode: Some(ContainerMode::Off),
            ..ContainerPolicy::default()
        },
        ContainerPolicy {
            container_name: "*".into(),
            controlled_resources: Some(vec![ResourceName::Memory]),
            ..ContainerPolicy::default()
        },
    ];
    let recommendation = subject.recommend(minute(0));
    assert_eq!(recommendation.containers.len(), 1);
    let app = &recommendation.containers[0];
    assert_eq!(app.target.cpu, None);
    // A container with mode `Off` gets no share of the minimum.
    assert_eq!(app.target.memory, Some(quantity("250Mi")));
    assert_eq!(app.explanation.cpu, None);
}

#[test]
fn v131_to_v134_offending_containers_are_parsed_from_an_eviction_event() {
    let read = |containers, usages, starved| {
        let blamed = eviction_notice::parse(containers, usages, starved);
        let name = |found: &eviction_notice::OffendingContainer| {
            (found.container.to_string(), found.usage.0)
        };
        blamed.iter().map(name).collect::<Vec<_>>()
    };
    let (one, two) = ("test-container", "test-container,other-container");
    let first = ("test-container".to_owned(), 1_048_576);
    let second = ("other-container".to_owned(), 2_097_152);
    assert_eq!(read(one, "1024Ki", "memory"), std::slice::from_ref(&first));
    assert_eq!(read(two, "1024Ki,2048Ki", "memory,memory"), [first.clone(), second]);
    assert_eq!(read(two, "1024Ki,2048Ki", "memory,evictable"), [first]);
    assert_eq!(read(two, "1024Ki,2048Ki", "memory"), []);
    assert_eq!(read(one, "much", "memory"), []);
}
