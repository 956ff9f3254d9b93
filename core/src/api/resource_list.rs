//! Amounts by resource name, as policies and recommendations list them.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::types::quantity::Quantity;

/// Name of a resource. Only the first two are ever recommended; policies may name any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourceName {
    /// `cpu`
    Cpu,
    /// `memory`
    Memory,
    /// Anything else, such as `ephemeral-storage`.
    Other(Box<str>),
}

impl ResourceName {
    /// As it is written in objects.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for ResourceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Cow::<'de, str>::deserialize(deserializer)?))
    }
}

impl JsonSchema for ResourceName {
    fn schema_name() -> Cow<'static, str> {
        "ResourceName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Nearly every list has CPU and memory.
const TYPICAL_LEN: usize = 2;

/// As many are inserted in their place when a list is read.
const MAX_ORDERED_INSERTS: usize = 16;

/// Amounts by resource, ordered by name. A plain vector: a map's node would cost ten times the two entries
/// that it nearly always has, and each container of each autoscaler holds up to six lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList(Vec<(ResourceName, Quantity)>);

impl ResourceList {
    /// No resource at all.
    pub const EMPTY: Self = Self(Vec::new());

    /// The two resources that are recommended.
    pub fn cpu_and_memory(cpu: Option<Quantity>, memory: Option<Quantity>) -> Self {
        let cpu = cpu.map(|amount| (ResourceName::Cpu, amount));
        let memory = memory.map(|amount| (ResourceName::Memory, amount));
        Self(cpu.into_iter().chain(memory).collect())
    }

    /// Of entries in any order; the last one of a name counts.
    fn keep_last_of_each(mut all: Vec<(ResourceName, Quantity)>) -> Self {
        all.reverse();
        all.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        all.dedup_by(|(one, _), (other, _)| one == other);
        Self(all)
    }

    /// The amount of a resource, when the list has it.
    pub fn get(&self, name: &ResourceName) -> Option<Quantity> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, amount)| amount)
    }

    /// The amount of CPU, when the list has it.
    pub fn cpu(&self) -> Option<Quantity> {
        self.get(&ResourceName::Cpu)
    }

    /// The amount of memory, when the list has it.
    pub fn memory(&self) -> Option<Quantity> {
        self.get(&ResourceName::Memory)
    }

    /// Sets the amount of a resource, and answers the one that it had.
    pub fn insert(&mut self, name: ResourceName, amount: Quantity) -> Option<Quantity> {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name.as_str())) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, amount)),
            Err(place) => {
                if self.0.is_empty() {
                    // A vector begins with room for four, and there are several lists in each of thousands of pods.
                    self.0.reserve_exact(TYPICAL_LEN);
                }
                self.0.insert(place, (name, amount));
                None
            }
        }
    }

    /// Takes a resource out of the list, and answers the amount that it had.
    pub fn remove(&mut self, name: &ResourceName) -> Option<Quantity> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }

    /// How many resources the list names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list names no resource.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, by name, with amounts that can be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ResourceName, &mut Quantity)> {
        self.0.iter_mut().map(|(name, amount)| (&*name, amount))
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Quantity)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }
}

impl Extend<(ResourceName, Quantity)> for ResourceList {
    fn extend<I: IntoIterator<Item = (ResourceName, Quantity)>>(&mut self, entries: I) {
        for (name, amount) in entries {
            self.insert(name, amount);
        }
    }
}

impl FromIterator<(ResourceName, Quantity)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Quantity)>>(entries: I) -> Self {
        let mut list = Self::default();
        for (name, amount) in entries {
            list.insert(name, amount);
        }
        list
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, amount) in &self.0 {
            map.serialize_entry(name, amount)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ResourceList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("amounts by resource, such as {\"cpu\": \"100m\"}")
            }

            fn visit_map<A: de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ResourceList, A::Error> {
                let mut list = ResourceList::default();
                while let Some((name, amount)) = map.next_entry()? {
                    // The author of an object decides how many there are: sort the rest once instead of inserting each.
                    if list.0.len() >= MAX_ORDERED_INSERTS {
                        let mut all = list.0;
                        all.push((name, amount));
                        while let Some(entry) = map.next_entry()? {
                            all.push(entry);
                        }
                        return Ok(ResourceList::keep_last_of_each(all));
                    }
                    list.insert(name, amount);
                }
                Ok(list)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

impl JsonSchema for ResourceList {
    fn schema_name() -> Cow<'static, str> {
        "ResourceList".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": Quantity::json_schema(generator),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_names_in_order_and_its_last_amounts() {
        let json = r#"{"memory":"1Gi","example.com/gpu":1,"cpu":0.5,"memory":"2Gi"}"#;
        let list: ResourceList = serde_json::from_str(json).expect("a list");
        assert_eq!(list.cpu().expect("cpu").to_string(), "500m");
        assert_eq!(
            serde_json::to_string(&list).expect("serialises"),
            r#"{"cpu":"500m","example.com/gpu":"1","memory":"2Gi"}"#
        );
    }

    #[test]
    fn a_long_list_keeps_its_names_in_order_and_its_last_amounts_too() {
        let entries = |amount: usize| (0..40).rev().map(move |n| format!(r#""r{n:02}":{amount}"#));
        let json = entries(1).chain(entries(2)).collect::<Vec<_>>().join(",");
        let list: ResourceList = serde_json::from_str(&format!("{{{json}}}")).expect("a list");
        let read: Vec<String> = list.iter().map(|(name, it)| format!("{name} {it}")).collect();
        assert_eq!(read, (0..40).map(|n| format!("r{n:02} 2")).collect::<Vec<_>>());
    }

    #[test]
    fn a_bad_amount_is_named_in_the_error() {
        let error = serde_json::from_str::<ResourceList>(r#"{"cpu":"lots"}"#)
            .expect_err("not an amount")
            .to_string();
        assert!(error.starts_with(r#""lots" is not a quantity"#), "{error}");
    }
}
