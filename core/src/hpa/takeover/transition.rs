//! What adopting, pausing, resuming and releasing change in an object, as one merge patch.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Map, Value, json};

use super::{
    BEHAVIOR, Direction, InvalidBehavior, MODE, ObjectMode, PAUSED, SavedBehavior,
    controlling_owner, requested_mode,
};
use crate::{api::annotations::MAX_VALUE_BYTES, hpa::record::RECORD_ANNOTATION};

/// The value of the annotation of a paused object.
const PAUSED_ALL: &str = "all";

const DISABLED: &str = "Disabled";

const BOTH: &[Direction] = &[Direction::ScaleUp, Direction::ScaleDown];

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Hands the object over in a mode, `Assist` or `Drive`.
    Adopt(ObjectMode),
    /// Gives the object back to the built-in controller.
    Release,
    /// Stops all scaling of the object, except to stay within the bounds.
    Pause,
    /// Ends the pause.
    Resume,
}

/// The parts of an object that a transition reads.
#[derive(Clone, Copy, Debug)]
pub struct CurrentObject<'a> {
    pub metadata: &'a ObjectMeta,
    /// `spec.behavior` as it was read; null if it is not set.
    pub behavior: &'a Value,
}

/// Why an object is not changed. The message is one line, which follows the name of the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another controller owns the object.
    #[error("{kind} {name} owns it and writes its spec; change the {kind} instead")]
    Owned {
        /// The kind of the owner.
        kind: String,
        /// The name of the owner.
        name: String,
    },
    #[error("it is adopted already ({0})")]
    AlreadyAdopted(ObjectMode),
    /// The object is paused.
    #[error("it is paused already ({PAUSED}: {0})")]
    AlreadyPaused(String),
    /// The object was not adopted.
    #[error("it is not adopted: it has no annotation {}", MODE.name)]
    NotAdopted,
    /// The object is not paused.
    #[error("it is not paused: it has no annotation {PAUSED}")]
    NotPaused,
    /// The saved rules cannot be restored.
    #[error(transparent)]
    InvalidSaved(#[from] InvalidBehavior),
    /// The rules cannot be saved without loss.
    #[error("spec.behavior cannot be saved: {0}")]
    InvalidSpec(String),
}

/// A change of an object. What is not named stays.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitionPatch {
    /// Annotations to set, or to remove if the value is `None`.
    annotations: BTreeMap<&'static str, Option<String>>,
    /// The merge patch of `spec.behavior`; `None` if it stays.
    behavior: Option<Value>,
    /// The changed fields: path, value before and value after.
    pub changes: Vec<FieldChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    pub path: String,
    /// The value before; `None` if it was not set.
    pub before: Option<Value>,
    /// The value after; `None` if it is removed.
    pub after: Option<Value>,
}

/// What holds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holds {
    mode: ObjectMode,
    paused: &'static [Direction],
}

impl Holds {
    /// Reads the annotations. A mode that is not valid is none.
    fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mode = requested_mode(annotations).unwrap_or_default();
        let paused = annotations.get(PAUSED).map(|value| value.split_whitespace().next());
        let paused: &[Direction] = match paused {
            None => &[],
            Some(Some("up")) => &[Direction::ScaleUp],
            Some(Some("down")) => &[Direction::ScaleDown],
            Some(_) => BOTH,
        };
        Self { mode, paused }
    }

    fn disables(self, direction: Direction) -> bool {
        self.mode.disabled_directions().contains(&direction) || self.paused.contains(&direction)
    }

    fn is_none(self) -> bool {
        self.mode == ObjectMode::Shadow && self.paused.is_empty()
    }
}

/// The rules of a direction.
fn rules(
    behavior: &HorizontalPodAutoscalerBehavior,
    direction: Direction,
) -> Option<&HPAScalingRules> {
    match direction {
        Direction::ScaleUp => behavior.scale_up.as_ref(),
        Direction::ScaleDown => behavior.scale_down.as_ref(),
    }
}

fn rules_mut(
    behavior: &mut HorizontalPodAutoscalerBehavior,
    direction: Direction,
) -> &mut Option<HPAScalingRules> {
    match direction {
        Direction::ScaleUp => &mut behavior.scale_up,
        Direction::ScaleDown => &mut behavior.scale_down,
    }
}

fn is_disabled(behavior: &HorizontalPodAutoscalerBehavior, direction: Direction) -> bool {
    let rules = rules(behavior, direction);
    rules.is_some_and(|rules| rules.select_policy.as_deref() == Some(DISABLED))
}

/// Plans a transition of an object.
pub fn plan(
    transition: Transition,
    object: &CurrentObject<'_>,
) -> Result<TransitionPatch, Refusal> {
    let none = BTreeMap::new();
    let annotations = object.metadata.annotations.as_ref().unwrap_or(&none);
    let current = SavedBehavior::from_json(object.behavior).map_err(Refusal::InvalidSpec)?;
    let before = Holds::read(annotations);
    let after = hold_after(transition, object.metadata, annotations, before, &current)?;
    let saved = SavedBehavior::read(annotations)?;
    let original = original_behavior(&current, saved.as_ref(), before);

    let mode = match transition {
        Transition::Adopt(mode) => Some(mode.to_string()),
        Transition::Release => None,
        Transition::Pause | Transition::Resume => annotations.get(MODE.name).cloned(),
    };
    let was_paused = annotations.get(PAUSED).filter(|_| transition != Transition::Resume);
    let pause = transition == Transition::Pause;
    let paused = was_paused.cloned().or_else(|| pause.then(|| PAUSED_ALL.to_owned()));
    let record = annotations.get(RECORD_ANNOTATION);
    let record = record.filter(|_| transition != Transition::Release).cloned();
    let (behavior, saved) = if after.is_none() {
        (original, None)
    } else {
        let text = original.to_annotation();
        if text.len() > MAX_VALUE_BYTES {
            return Err(Refusal::InvalidSpec(format!("it has more than {MAX_VALUE_BYTES} bytes")));
        }
        (held_behavior(&current, &original, before, after, saved.is_some()), Some(text))
    };
    Ok(TransitionPatch::between(
        annotations,
        [(MODE.name, mode), (PAUSED, paused), (BEHAVIOR.name, saved), (RECORD_ANNOTATION, record)],
        object.behavior,
        &serde_json::to_value(&behavior.0).unwrap_or_default(),
    ))
}

/// Whether `release` has something to do: the object was adopted, or rules were saved for it.
pub fn is_adopted(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(MODE.name) || is_leftover(annotations)
}

/// The tool that applies the object from a repository, if one is named: it may revert changes of the object.
pub fn gitops_tool(metadata: &ObjectMeta) -> Option<&'static str> {
    const MARKS: [(&str, &str); 4] = [
        ("argocd.argoproj.io/tracking-id", "Argo CD"),
        ("argocd.argoproj.io/instance", "Argo CD"),
        ("kustomize.toolkit.fluxcd.io/name", "Flux"),
        ("helm.toolkit.fluxcd.io/name", "Flux"),
    ];
    let has = |key: &str| {
        let maps = [&metadata.labels, &metadata.annotations];
        maps.into_iter().flatten().any(|map| map.contains_key(key))
    };
    MARKS.into_iter().find(|(key, _)| has(key)).map(|(_, tool)| tool)
}

/// What holds the object after the transition.
fn hold_after(
    transition: Transition,
    metadata: &ObjectMeta,
    annotations: &BTreeMap<String, String>,
    before: Holds,
    current: &SavedBehavior,
) -> Result<Holds, Refusal> {
    let owner = controlling_owner(metadata.owner_references.as_deref().unwrap_or_default());
    if let Some(owner) = owner
        && matches!(transition, Transition::Adopt(_) | Transition::Pause)
    {
        let (kind, name) = (owner.kind.clone(), owner.name.clone());
        return Err(Refusal::Owned { kind, name });
    }
    let is_in_place = |directions: &[Direction]| {
        let current = current.0.as_ref();
        directions.iter().all(|direction| current.is_some_and(|now| is_disabled(now, *direction)))
    };
    match transition {
        Transition::Adopt(mode)
            if before.mode == mode && is_in_place(mode.disabled_directions()) =>
        {
            Err(Refusal::AlreadyAdopted(mode))
        }
        Transition::Adopt(mode) => Ok(Holds { mode, ..before }),
        Transition::Release if !is_adopted(annotations) => Err(Refusal::NotAdopted),
        Transition::Release => Ok(Holds { mode: ObjectMode::Shadow, ..before }),
        Transition::Pause => match annotations.get(PAUSED) {
            Some(value) if is_in_place(before.paused) => Err(Refusal::AlreadyPaused(value.clone())),
            Some(_) => Ok(before),
            None => Ok(Holds { paused: BOTH, ..before }),
        },
        Transition::Resume if !annotations.contains_key(PAUSED) => Err(Refusal::NotPaused),
        Transition::Resume => Ok(Holds { paused: &[], ..before }),
    }
}

/// Whether rules were saved, and the annotation that they were saved for was removed by hand.
fn is_leftover(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key(BEHAVIOR.name) && !annotations.contains_key(PAUSED)
}

/// Whether a direction is disabled because of the annotations, so that its rules are the saved ones.
fn is_held(current: &SavedBehavior, direction: Direction, before: Holds, is_saved: bool) -> bool {
    let is_disabled = current.0.as_ref().is_some_and(|now| is_disabled(now, direction));
    is_disabled && (before.disables(direction) || (before.is_none() && is_saved))
}

/// The behavior without what the annotations disable. Rules of directions that are not disabled may have been edited since
/// they were saved, and stay.
fn original_behavior(
    current: &SavedBehavior,
    saved: Option<&SavedBehavior>,
    before: Holds,
) -> SavedBehavior {
    let is_held = |direction: &Direction| is_held(current, *direction, before, saved.is_some());
    if !BOTH.iter().any(is_held) {
        return current.clone();
    }
    let saved = saved.cloned().unwrap_or_default();
    let (mut now, old) = (current.completed(), saved.completed());
    let is_same = |direction: &Direction| rules(&now, *direction) == rules(&old, *direction);
    if BOTH.iter().all(|direction| is_held(direction) || is_same(direction)) {
        return saved;
    }
    for direction in BOTH.iter().filter(|direction| is_held(direction)) {
        *rules_mut(&mut now, *direction) = rules(&old, *direction).cloned();
    }
    SavedBehavior(Some(now))
}

/// The behavior with the directions disabled that `after` disables. Other fields of their rules stay: they have no effect.
fn held_behavior(
    current: &SavedBehavior,
    original: &SavedBehavior,
    before: Holds,
    after: Holds,
    is_saved: bool,
) -> SavedBehavior {
    let mut behavior = current.0.clone().unwrap_or_default();
    let completed = original.completed();
    for direction in BOTH.iter().copied() {
        if after.disables(direction) {
            let rules = rules_mut(&mut behavior, direction).get_or_insert_default();
            rules.select_policy = Some(DISABLED.to_owned());
        } else if is_held(current, direction, before, is_saved) {
            *rules_mut(&mut behavior, direction) = rules(&completed, direction).cloned();
        }
    }
    SavedBehavior(Some(behavior))
}

impl TransitionPatch {
    fn between(
        annotations: &BTreeMap<String, String>,
        wanted: [(&'static str, Option<String>); 4],
        before: &Value,
        after: &Value,
    ) -> Self {
        let mut changes = Vec::new();
        let mut patch = BTreeMap::new();
        for (name, after) in wanted {
            let before = annotations.get(name);
            if before != after.as_ref() {
                changes.push(FieldChange {
                    path: format!("metadata.annotations[{name:?}]"),
                    before: before.cloned().map(Value::String),
                    after: after.clone().map(Value::String),
                });
                patch.insert(name, after);
            }
        }
        let behavior = merge_patch(before, after);
        list_changes("spec.behavior", Some(before), Some(after), &mut changes);
        Self { annotations: patch, behavior, changes }
    }

    /// The merge patch without a precondition, as it is added to manifests.
    pub fn body(&self) -> Value {
        let mut body = json!({});
        if !self.annotations.is_empty() {
            body["metadata"] = json!({"annotations": self.annotations});
        }
        if let Some(behavior) = &self.behavior {
            body["spec"] = json!({"behavior": behavior});
        }
        body
    }

    /// The merge patch that applies only to this version of the object.
    pub fn body_for_version(&self, resource_version: &str) -> Value {
        let mut body = self.body();
        body["metadata"]["resourceVersion"] = resource_version.into();
        body
    }
}

/// The JSON merge patch (RFC 7386) that turns `before` into `after`, if they differ.
fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, new) in new {
        if let Some(value) = merge_patch(old.get(name).unwrap_or(&Value::Null), new) {
            patch.insert(name.clone(), value);
        }
    }
    Some(Value::Object(patch))
}

/// Lists the fields below `path` that differ. Lists count as one field.
fn list_changes(
    path: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    changes: &mut Vec<FieldChange>,
) {
    let is_set = |value: &&Value| !value.is_null();
    let (before, after) = (before.filter(is_set), after.filter(is_set));
    if before == after {
        return;
    }
    let empty = Map::new();
    let fields = |value: Option<&Value>| match value {
        None => Some(Map::new()),
        Some(Value::Object(fields)) => Some(fields.clone()),
        Some(_) => None,
    };
    let both = fields(before).zip(fields(after)).filter(|both| *both != (empty.clone(), empty));
    let Some((old, new)) = both else {
        let (before, after) = (before.cloned(), after.cloned());
        changes.push(FieldChange { path: path.to_owned(), before, after });
        return;
    };
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        list_changes(&format!("{path}.{name}"), old.get(name), new.get(name), changes);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use proptest::{collection::vec, option, prelude::*, sample::select};

    use super::*;
    use crate::hpa::{
        defaults::complete_behavior,
        spec::Spec,
        takeover::{Takeover, takeover},
    };

    const ADOPT: Transition = Transition::Adopt(ObjectMode::Drive);
    const ASSIST: Transition = Transition::Adopt(ObjectMode::Assist);

    /// An object as an API server stores it.
    #[derive(Clone, Debug, PartialEq)]
    struct Object {
        metadata: ObjectMeta,
        behavior: Value,
        /// Whether the server sets defaults; otherwise the object is only patched.
        sets_defaults: bool,
    }

    impl Object {
        fn new(behavior: Value, sets_defaults: bool) -> Self {
            let mut object = Self { metadata: ObjectMeta::default(), behavior, sets_defaults };
            object.set_defaults();
            object
        }

        fn annotated(behavior: Value, annotations: &[(&str, &str)]) -> Self {
            let mut object = Self::new(behavior, true);
            let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            object.metadata.annotations = Some(annotations.iter().map(own).collect());
            object
        }

        fn set_defaults(&mut self) {
            if self.sets_defaults && !self.behavior.is_null() {
                let mut behavior =
                    serde_json::from_value(self.behavior.clone()).expect("a behavior");
                complete_behavior(&mut behavior);
                self.behavior = serde_json::to_value(behavior).expect("JSON");
            }
        }

        fn plan(&self, transition: Transition) -> Result<TransitionPatch, Refusal> {
            plan(transition, &CurrentObject { metadata: &self.metadata, behavior: &self.behavior })
        }

        /// The object after its transition, patched as an API server does.
        fn after(&self, transition: Transition) -> Self {
            let body = self.plan(transition).expect("is planned").body_for_version("7");
            assert_eq!(body["metadata"]["resourceVersion"], "7");
            let mut after = self.clone();
            let mut annotations = json!(after.metadata.annotations.unwrap_or_default());
            apply(&mut annotations, &body["metadata"]["annotations"]);
            let annotations: BTreeMap<_, _> = serde_json::from_value(annotations).expect("strings");
            after.metadata.annotations = Some(annotations).filter(|map| !map.is_empty());
            if let Some(patch) = body.pointer("/spec/behavior") {
                apply(&mut after.behavior, patch);
            }
            after.set_defaults();
            after
        }

        fn annotation(&self, key: &str) -> Option<&str> {
            self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
        }

        fn takeover(&self) -> (Takeover, Spec) {
            let spec = json!({"maxReplicas": 9, "behavior": self.behavior,
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
            let spec = Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("valid");
            let annotations = self.metadata.annotations.clone().unwrap_or_default();
            (takeover(&annotations, &[], &spec), spec)
        }

        fn is_disabled(&self, direction: &str) -> bool {
            self.behavior[direction]["selectPolicy"] == "Disabled"
        }
    }

    /// RFC 7386.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let Value::Object(target) = target else { return };
        for (name, value) in fields {
            if value.is_null() {
                target.remove(name);
            } else {
                apply(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
    }

    fn rules_value() -> impl Strategy<Value = Value> {
        let policy = (select(vec!["Pods", "Percent"]), 1..9_i32, 1..1800_i32).prop_map(
            |(kind, value, period)| json!({"type": kind, "value": value, "periodSeconds": period}),
        );
        let fields = (
            option::of(select(vec!["Max", "Min", "Disabled"])),
            option::of(0..=3600_i32),
            option::of(vec(policy, 1..3)),
            option::of(select(vec!["0", "50m"])),
        );
        fields.prop_map(|(select_policy, window, policies, tolerance)| {
            let mut rules = json!({"selectPolicy": select_policy, "policies": policies,
                "stabilizationWindowSeconds": window, "tolerance": tolerance});
            if let Value::Object(rules) = &mut rules {
                rules.retain(|_, value| !value.is_null());
            }
            rules
        })
    }

    fn behavior_value() -> impl Strategy<Value = Value> {
        let both = (option::of(rules_value()), option::of(rules_value()));
        option::of(both).prop_map(|both| {
            let Some((up, down)) = both else { return Value::Null };
            let mut behavior = json!({});
            for (direction, rules) in [("scaleUp", up), ("scaleDown", down)] {
                if let Some(rules) = rules {
                    behavior[direction] = rules;
                }
            }
            behavior
        })
    }

    fn transition() -> impl Strategy<Value = Transition> {
        select(vec![ADOPT, ASSIST, Transition::Release, Transition::Pause, Transition::Resume])
    }

    proptest! {
        /// Whatever is done in between, an object that is neither adopted nor paused is the original one.
        #[test]
        fn release_and_resume_give_back_the_original_spec(
            behavior in behavior_value(), sets_defaults: bool, steps in vec(transition(), 0..8),
        ) {
            let original = Object::new(behavior, sets_defaults);
            let rules = Object::new(original.behavior.clone(), true);
            let mut object = original.clone();
            let (mut mode, mut is_paused) = (ObjectMode::Shadow, false);
            for step in steps.into_iter().chain([Transition::Release, Transition::Resume]) {
                let is_refused = match step {
                    Transition::Adopt(wanted) => wanted == mode,
                    Transition::Release => mode == ObjectMode::Shadow,
                    Transition::Pause => is_paused,
                    Transition::Resume => !is_paused,
                };
                let found = object.plan(step);
                prop_assert!(found.is_err() == is_refused, "{step:?} {object:?}: {found:?}");
                if is_refused {
                    continue;
                }
                object = object.after(step);
                match step {
                    Transition::Adopt(wanted) => mode = wanted,
                    Transition::Release => mode = ObjectMode::Shadow,
                    Transition::Pause => is_paused = true,
                    Transition::Resume => is_paused = false,
                }
                // The mode applies, and the decision goes by the original rules.
                let (found, spec) = object.takeover();
                prop_assert_eq!((found.mode, &found.ineffective), (mode, &None));
                if mode == ObjectMode::Drive {
                    prop_assert_eq!(found.effective_spec(&spec), rules.takeover().1);
                }
                if is_paused {
                    prop_assert!(object.is_disabled("scaleUp") && object.is_disabled("scaleDown"));
                }
                if mode == ObjectMode::Shadow && !is_paused {
                    prop_assert_eq!(&object, &original);
                }
            }
            prop_assert_eq!(object, original);
        }
    }

    #[test]
    fn a_patch_changes_only_what_is_needed() {
        let down = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
        let object = Object::new(down, true);
        let saved = object.behavior.to_string();
        let disabled = json!({"selectPolicy": "Disabled"});
        assert_eq!(
            object.plan(ADOPT).expect("a patch").body_for_version("41"),
            json!({"metadata": {"resourceVersion": "41",
                    "annotations": {"plimsoll.dev/hpa": "drive", "plimsoll.dev/behavior": saved}},
                "spec": {"behavior": {"scaleUp": disabled, "scaleDown": disabled}}})
        );
        let assisted = object.plan(ASSIST).expect("a patch");
        assert_eq!(assisted.body()["spec"], json!({"behavior": {"scaleDown": disabled}}));
        let changes: Vec<_> = assisted.changes.iter().map(|change| &*change.path).collect();
        let expected = [
            "metadata.annotations[\"plimsoll.dev/hpa\"]",
            "metadata.annotations[\"plimsoll.dev/behavior\"]",
            "spec.behavior.scaleDown.selectPolicy",
        ];
        assert_eq!(changes, expected);
        let released = object.after(ADOPT).plan(Transition::Release).expect("a patch");
        let max = json!({"selectPolicy": "Max"});
        assert_eq!(
            released.body(),
            json!({"metadata": {"annotations": {"plimsoll.dev/hpa": null, "plimsoll.dev/behavior": null}},
                "spec": {"behavior": {"scaleUp": max, "scaleDown": max}}})
        );
        let without = Object::new(Value::Null, true);
        assert_eq!(without.after(ADOPT).annotation(BEHAVIOR.name), Some("null"));
        let released = without.after(ADOPT).plan(Transition::Release).expect("a patch");
        assert_eq!(released.body()["spec"], json!({"behavior": null}));
        // An adopted object is disabled already.
        let paused = without.after(ADOPT).plan(Transition::Pause).expect("a patch");
        assert_eq!(
            paused.body(),
            json!({"metadata": {"annotations": {"plimsoll.dev/paused": "all"}}})
        );
    }

    #[test]
    fn a_transition_that_would_change_nothing_or_lose_something_is_refused() {
        let refusal = |object: &Object, transition| {
            object.plan(transition).expect_err("is refused").to_string()
        };
        let object = Object::new(Value::Null, true);
        let adopted = object.after(ADOPT);
        assert_eq!(refusal(&adopted, ADOPT), "it is adopted already (drive)");
        assert_eq!(
            refusal(&object, Transition::Release),
            "it is not adopted: it has no annotation plimsoll.dev/hpa"
        );
        assert_eq!(
            refusal(&object, Transition::Resume),
            "it is not paused: it has no annotation plimsoll.dev/paused"
        );
        assert_eq!(
            refusal(&adopted.after(Transition::Pause), Transition::Pause),
            "it is paused already (plimsoll.dev/paused: all)"
        );
        let mut owned = adopted.clone();
        owned.metadata.owner_references = Some(vec![OwnerReference {
            kind: "ScaledObject".to_owned(),
            name: "web".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        for transition in [ADOPT, ASSIST, Transition::Pause] {
            assert_eq!(
                refusal(&owned, transition),
                "ScaledObject web owns it and writes its spec; change the ScaledObject instead"
            );
        }
        assert_eq!(owned.after(Transition::Release).behavior, Value::Null);
        let unknown = Object::new(json!({"scaleDown": {"pace": 3}}), false);
        assert_eq!(
            refusal(&unknown, ADOPT),
            "spec.behavior cannot be saved: unknown field behavior.scaleDown.pace"
        );
        let broken = Object::annotated(
            json!({"scaleDown": {"selectPolicy": "Disabled"}}),
            &[("plimsoll.dev/hpa", "assist"), ("plimsoll.dev/behavior", "{")],
        );
        for transition in [Transition::Release, ADOPT, Transition::Pause] {
            let message = refusal(&broken, transition);
            assert!(message.starts_with("annotation plimsoll.dev/behavior: "), "{message}");
        }
    }

    #[test]
    fn rules_that_were_edited_while_the_object_was_adopted_stay() {
        let original = Object::new(json!({"scaleDown": {"stabilizationWindowSeconds": 60}}), true);
        let mut assisted = original.after(ASSIST);
        assisted.behavior["scaleUp"]["stabilizationWindowSeconds"] = json!(30);
        // A pause stops the other direction too, and keeps its rules.
        let resumed = assisted.after(Transition::Pause).after(Transition::Resume);
        assert_eq!(resumed.behavior, assisted.behavior);
        let released = resumed.after(Transition::Release);
        assert_eq!(released.behavior["scaleUp"]["stabilizationWindowSeconds"], 30);
        assert_eq!(released.behavior["scaleDown"], original.behavior["scaleDown"]);
        // A manifest without the pair was applied: its rules count.
        let mut reverted = original.after(ADOPT);
        reverted.behavior = json!({"scaleUp": {"selectPolicy": "Min"}});
        reverted.set_defaults();
        assert_eq!(reverted.after(Transition::Release).behavior, reverted.behavior);
        let adopted = reverted.after(ADOPT);
        assert_eq!(adopted.after(Transition::Release).behavior, reverted.behavior);
    }

    #[test]
    fn annotations_that_were_written_by_hand_are_accepted() {
        let pair = json!({"scaleUp": {"selectPolicy": "Disabled"},
            "scaleDown": {"selectPolicy": "Disabled"}});
        let by_hand = Object::annotated(pair.clone(), &[("plimsoll.dev/hpa", "drive")]);
        assert_eq!(by_hand.after(Transition::Release).behavior, Value::Null);
        // Only the annotation with the mode was removed by hand.
        let leftover = Object::annotated(pair.clone(), &[("plimsoll.dev/behavior", "{}")]);
        assert_eq!(leftover.after(Transition::Release), Object::new(json!({}), true));
        // The pair is an ordinary setting, and comes back.
        let disabled = Object::new(pair, true);
        let adopted = disabled.after(ADOPT);
        assert_eq!(adopted.after(Transition::Release), disabled);
        // An annotation without the pair is completed.
        let half = Object::annotated(Value::Null, &[("plimsoll.dev/hpa", "drive")]);
        assert_eq!(half.after(ADOPT).takeover().0.mode, ObjectMode::Drive);
        let down = Object::annotated(Value::Null, &[("plimsoll.dev/paused", "down at 5")]);
        let held = down.after(Transition::Pause);
        assert!(held.is_disabled("scaleDown") && !held.is_disabled("scaleUp"));
        assert_eq!(held.annotation(PAUSED), Some("down at 5"));
        assert_eq!(held.after(Transition::Resume), Object::new(Value::Null, true));
    }

    #[test]
    fn tools_that_apply_objects_from_a_repository_are_known_by_their_marks() {
        let marked = |key: &str| ObjectMeta {
            labels: Some([(key.to_owned(), "shop".to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(gitops_tool(&marked("argocd.argoproj.io/instance")), Some("Argo CD"));
        assert_eq!(gitops_tool(&marked("kustomize.toolkit.fluxcd.io/name")), Some("Flux"));
        assert_eq!(gitops_tool(&marked("app")), None);
    }
}
