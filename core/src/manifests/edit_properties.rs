//! Edits of generated manifests, compared with what a YAML parser reads.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::{
    rightsizing::{
        report::{Change, Report, ResourceReport},
        survey::Resource,
    },
    types::Quantity,
};

use super::{
    ManifestSet, amount_text,
    test_reports::{MIB, container, report, resource, workload},
};

const KINDS: [&str; 4] = ["Deployment", "CronJob", "Pod", "Rollout"];

/// How a mapping is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Absent,
    Null,
    Empty,
    Block,
    Flow,
    Json,
}

#[derive(Clone, Debug)]
struct Section {
    style: Style,
    /// Quotes and amounts of CPU and memory; `None` if the key is missing.
    values: [Option<(&'static str, i64)>; 2],
    other: bool,
}

#[derive(Clone, Debug)]
struct Container {
    resources: Style,
    /// Requests and limits.
    sections: [Section; 2],
    limits_first: bool,
    changes: [Change; 2],
}

#[derive(Clone, Debug)]
struct Manifest {
    objects: Vec<(usize, bool, Vec<Container>)>,
    step: usize,
    indented_lists: bool,
    newline: &'static str,
    final_newline: bool,
    comments: bool,
}

fn section(large: bool) -> impl Strategy<Value = Section> {
    let value = move || {
        let amount = if large { 200_i64..300 } else { 1..100 };
        prop::option::weighted(0.7, (prop::sample::select(vec!["", "'", "\""]), amount))
    };
    let style = prop::sample::select(vec![
        Style::Absent,
        Style::Null,
        Style::Empty,
        Style::Block,
        Style::Block,
        Style::Block,
        Style::Flow,
        Style::Json,
    ]);
    (style, [value(), value()], any::<bool>()).prop_map(|(style, values, other)| {
        let has_values = other || values.iter().any(Option::is_some);
        let is_filled = matches!(style, Style::Block | Style::Flow | Style::Json);
        Section {
            style: if is_filled && !has_values { Style::Empty } else { style },
            values,
            other,
        }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let limit = prop_oneof![
        Just((None, false)),
        (200_i64..300).prop_map(|amount| (Some(amount), false)),
        Just((None, true)),
    ];
    (prop::option::of(1_i64..100), limit).prop_map(|(request, (limit, remove_limit))| Change {
        request,
        limit,
        remove_limit,
        held: None,
    })
}

fn containers() -> impl Strategy<Value = Vec<Container>> {
    let style = prop::sample::select(vec![
        Style::Absent,
        Style::Null,
        Style::Empty,
        Style::Block,
        Style::Block,
        Style::Block,
        Style::Flow,
        Style::Json,
    ]);
    let container = (style, [section(false), section(true)], any::<bool>(), [change(), change()])
        .prop_map(|(resources, sections, limits_first, changes)| {
            let has_sections = sections.iter().any(|section| section.style != Style::Absent);
            let is_filled = matches!(resources, Style::Block | Style::Flow | Style::Json);
            let resources = if is_filled && !has_sections { Style::Empty } else { resources };
            Container { resources, sections, limits_first, changes }
        });
    prop::collection::vec(container, 1..4)
}

fn manifest() -> impl Strategy<Value = Manifest> {
    let objects = prop::collection::vec((0..KINDS.len(), any::<bool>(), containers()), 1..4);
    (objects, prop::sample::select(vec![2_usize, 3, 4]), any::<[bool; 4]>()).prop_map(
        |(objects, step, [indented_lists, crlf, final_newline, comments])| Manifest {
            objects,
            step,
            indented_lists,
            newline: if crlf { "\r\n" } else { "\n" },
            final_newline,
            comments,
        },
    )
}

fn amount(resource: usize, amount: i64) -> i64 {
    if resource == 0 { amount } else { amount * MIB }
}

const RESOURCES: [Resource; 2] = [Resource::Cpu, Resource::Memory];

/// Writes lines with comments that are numbered.
struct Writer<'m> {
    manifest: &'m Manifest,
    text: String,
    comments: usize,
}

impl Writer<'_> {
    fn line(&mut self, indent: usize, line: &str) {
        self.text.push_str(&" ".repeat(indent));
        self.text.push_str(line);
        if self.manifest.comments {
            self.comments += 1;
            self.text.extend([format!("  # é {}", self.comments)]);
            if self.comments.is_multiple_of(3) {
                self.text.extend([format!("\n\n{}# {}", " ".repeat(indent), self.comments)]);
            }
        }
        self.text.push('\n');
    }

    fn entry(
        &mut self,
        indent: usize,
        key: &str,
        style: Style,
        inner: &dyn Fn(&mut Self, usize),
        flow: &str,
    ) {
        match style {
            Style::Absent => {}
            Style::Null => self.line(indent, &format!("{key}:")),
            Style::Empty => self.line(indent, &format!("{key}: {{}}")),
            Style::Block => {
                self.line(indent, &format!("{key}:"));
                inner(self, indent + self.manifest.step);
            }
            Style::Flow | Style::Json => self.line(indent, &format!("{key}: {flow}")),
        }
    }

    fn container(&mut self, indent: usize, name: &str, container: &Container) {
        let anchor = if name == "c0" { "&a " } else { "" };
        self.line(indent, &format!("- name: {name}"));
        self.line(indent + 2, &format!("image: {anchor}\"x:1\""));
        let flow = flow_resources(container);
        let inner = |writer: &mut Self, indent: usize| {
            for section in ordered(container) {
                let (key, section) = section;
                let values = |writer: &mut Self, indent: usize| {
                    for (key, value) in entries(section, false) {
                        writer.line(indent, &format!("{key}: {value}"));
                    }
                };
                writer.entry(
                    indent,
                    key,
                    section.style,
                    &values,
                    &flow_section(section, section.style == Style::Json),
                );
            }
        };
        self.entry(indent + 2, "resources", container.resources, &inner, &flow);
        self.line(indent + 2, "args:");
        self.line(indent + 2, "- 'a: b'");
        self.text.extend([format!(
            "{}- |\n{}resources: {{}} # text\n",
            " ".repeat(indent + 2),
            " ".repeat(indent + 6)
        )]);
    }

    fn object(
        &mut self,
        index: usize,
        (kind, has_namespace, containers): &(usize, bool, Vec<Container>),
    ) {
        let step = self.manifest.step;
        self.line(0, "---");
        self.line(0, &format!("kind: {}", KINDS[*kind]));
        self.line(0, "metadata:");
        self.line(step, &format!("name: o{index}"));
        if *has_namespace {
            self.line(step, "namespace: 'shop'");
        }
        self.line(0, "spec:");
        let path: &[&str] = match KINDS[*kind] {
            "Pod" => &[],
            "CronJob" => &["jobTemplate", "spec", "template", "spec"],
            _ => &["template", "spec"],
        };
        let mut indent = step;
        for key in path {
            self.line(indent, &format!("{key}:"));
            indent += step;
        }
        self.line(indent, "containers:");
        let list = if self.manifest.indented_lists { indent + step } else { indent };
        for (number, container) in containers.iter().enumerate() {
            self.container(list, &format!("c{number}"), container);
        }
        self.line(indent, "other: &b {cpu: 1, memory: [*a, 2]}");
        self.line(indent, "again: *b");
    }
}

fn ordered(container: &Container) -> Vec<(&'static str, &Section)> {
    let mut sections =
        vec![("requests", &container.sections[0]), ("limits", &container.sections[1])];
    if container.limits_first {
        sections.reverse();
    }
    sections
}

fn entries(section: &Section, json: bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (index, value) in section.values.iter().enumerate() {
        let Some((quote, value)) = value else { continue };
        let text = amount_text(RESOURCES[index], amount(index, *value));
        let key = RESOURCES[index].to_string();
        found.push(if json {
            (format!("\"{key}\""), format!("\"{text}\""))
        } else {
            (key, format!("{quote}{text}{quote}"))
        });
    }
    if section.other {
        let key = if json { "\"x.io/gpu\"" } else { "x.io/gpu" };
        found.insert(found.len() / 2, (key.to_owned(), "1".to_owned()));
    }
    found
}

fn flow_section(section: &Section, json: bool) -> String {
    let entries: Vec<_> =
        entries(section, json).iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", entries.join(", "))
}

fn flow_resources(container: &Container) -> String {
    let json = container.resources == Style::Json;
    let sections: Vec<_> = ordered(container)
        .into_iter()
        .filter(|(_, section)| section.style != Style::Absent)
        .map(|(key, section)| {
            let key = if json { format!("\"{key}\"") } else { key.to_owned() };
            match section.style {
                Style::Null => format!("{key}: null"),
                Style::Empty => format!("{key}: {{}}"),
                _ => format!("{key}: {}", flow_section(section, json)),
            }
        })
        .collect();
    format!("{{{}}}", sections.join(", "))
}

fn written(manifest: &Manifest) -> String {
    let mut writer = Writer { manifest, text: String::new(), comments: 0 };
    for (index, object) in manifest.objects.iter().enumerate() {
        writer.object(index, object);
    }
    let mut text = writer.text;
    if !manifest.final_newline {
        text.pop();
    }
    text.replace('\n', manifest.newline)
}

fn changes(container: &Container) -> Vec<ResourceReport> {
    let wanted = container.changes.iter().enumerate().map(|(index, change)| {
        let scaled = |value: Option<i64>| value.map(|value| amount(index, value));
        let change = Change {
            request: scaled(change.request),
            limit: scaled(change.limit),
            ..change.clone()
        };
        resource(RESOURCES[index], change)
    });
    wanted.collect()
}

fn report_of(manifest: &Manifest) -> Report {
    let workloads = manifest.objects.iter().enumerate().map(|(index, (kind, _, containers))| {
        let containers = containers
            .iter()
            .enumerate()
            .map(|(number, one)| container(&format!("c{number}"), changes(one)));
        workload(&format!("shop/{}/o{index}", KINDS[*kind]), containers.collect())
    });
    report(workloads.collect())
}

fn edited(report: &Report, text: &str) -> String {
    let mut manifests = ManifestSet::new(report);
    manifests.add("a.yaml", text);
    let plan = manifests.plan();
    assert_eq!(plan.problems, [], "{text}");
    plan.files.first().map_or_else(|| text.to_owned(), |file| file.after.clone())
}

fn containers_of(object: &mut Value) -> &mut Vec<Value> {
    let path = match object["kind"].as_str() {
        Some("Pod") => "/spec/containers",
        Some("CronJob") => "/spec/jobTemplate/spec/template/spec/containers",
        _ => "/spec/template/spec/containers",
    };
    object.pointer_mut(path).and_then(Value::as_array_mut).expect("containers")
}

/// The resources of a container by section and name, with amounts as numbers.
fn taken_resources(container: &mut Value) -> BTreeMap<(String, String), i128> {
    let resources = container.as_object_mut().and_then(|map| map.remove("resources"));
    let mut found = BTreeMap::new();
    let empty = Map::new();
    let resources = resources.unwrap_or(Value::Null);
    for (section, values) in resources.as_object().unwrap_or(&empty) {
        for (name, value) in values.as_object().unwrap_or(&empty) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let quantity: Quantity = text.parse().expect("a quantity");
            found.insert((section.clone(), name.clone()), quantity.nanos());
        }
    }
    found
}

fn comments(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.ends_with("# text"))
        .filter_map(|line| line.split_once('#'))
        .map(|(_, comment)| comment)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_parser_sees_only_the_wanted_values_changed(manifest in manifest()) {
        let before = written(&manifest);
        let report = report_of(&manifest);
        let after = edited(&report, &before);
        prop_assert_eq!(&edited(&report, &after), &after, "applied twice");

        let read = |text: &str| -> Vec<Value> {
            serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
        };
        let (mut old, mut new) = (read(&before), read(&after));
        for (index, (_, _, containers)) in manifest.objects.iter().enumerate() {
            for (number, container) in containers.iter().enumerate() {
                let mut expected = taken_resources(&mut containers_of(&mut old[index])[number]);
                for wanted in changes(container) {
                    let name = wanted.resource.to_string();
                    let nanos = |amount| {
                        let text = amount_text(wanted.resource, amount);
                        text.parse::<Quantity>().expect("a quantity").nanos()
                    };
                    if let Some(request) = wanted.change.request {
                        expected.insert(("requests".into(), name.clone()), nanos(request));
                    }
                    if let Some(limit) = wanted.change.limit {
                        expected.insert(("limits".into(), name.clone()), nanos(limit));
                    }
                    if wanted.change.remove_limit {
                        expected.remove(&("limits".into(), name));
                    }
                }
                let found = taken_resources(&mut containers_of(&mut new[index])[number]);
                prop_assert_eq!(found, expected, "\n{}\n{}", before, after);
            }
        }
        prop_assert_eq!(&old, &new, "\n{}\n{}", before, after);

        let removes = manifest.objects.iter().flat_map(|(_, _, containers)| containers)
            .any(|container| container.changes.iter().any(|change| change.remove_limit));
        let (old, new) = (comments(&before), comments(&after));
        if removes {
            // Only comments of removed lines go.
            let mut rest = old.iter();
            prop_assert!(new.iter().all(|comment| rest.any(|other| other == comment)));
        } else {
            prop_assert_eq!(old, new);
        }
        prop_assert_eq!(before.ends_with('\n'), after.ends_with('\n'));
        prop_assert_eq!(after.matches('\n').count() == after.matches("\r\n").count(), manifest.newline == "\r\n");
    }

    #[test]
    fn replaced_values_are_the_only_bytes_that_differ(mut manifest in manifest()) {
        for container in manifest.objects.iter_mut().flat_map(|(_, _, containers)| containers) {
            if matches!(container.resources, Style::Absent | Style::Null | Style::Empty) {
                container.resources = Style::Block;
            }
            for section in &mut container.sections {
                if matches!(section.style, Style::Absent | Style::Null | Style::Empty) {
                    section.style = Style::Block;
                }
                section.values = section.values.map(|value| value.or(Some(("", 99))));
            }
            for (index, change) in container.changes.iter_mut().enumerate() {
                change.remove_limit = false;
                change.request = change.request.or(Some(1 + index as i64));
                change.limit = change.limit.or(Some(250));
            }
        }
        let before = written(&manifest);
        let after = edited(&report_of(&manifest), &before);
        // The same manifest, written with the new values in the first place.
        for container in manifest.objects.iter_mut().flat_map(|(_, _, containers)| containers) {
            for index in 0..2 {
                let change = &container.changes[index];
                for (section, new) in [(0, change.request), (1, change.limit)] {
                    let value = &mut container.sections[section].values[index];
                    *value = value.zip(new).map(|((quote, _), new)| (quote, new));
                }
            }
        }
        prop_assert_eq!(after, written(&manifest));
    }

    #[test]
    fn no_text_makes_edits_panic(
        head in "(kind: x\nmetadata: \\{name: x\\}\nspec: ?\n? *(template: ?\n? *)?)?",
        text in "(kind|name|spec|- |\\{|\\}|: |\n|  |&a|\\*a|#|'|x|\\?|\\||é|\t|,|containers|resources|metadata|limits|cpu|1){0,60}",
    ) {
        let removal = Change { request: Some(5), remove_limit: true, ..Change::default() };
        let resources = RESOURCES.map(|of| resource(of, removal.clone()));
        let report = report(vec![workload("shop/x/x", vec![container("x", resources.to_vec())])]);
        for path in ["kustomization.yaml", "a.yaml"] {
            let mut manifests = ManifestSet::new(&report);
            manifests.add(path, &format!("{head}{text}"));
            manifests.plan();
        }
    }
}
