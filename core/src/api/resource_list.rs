//! Quantities by resource name, as in policies and recommendations.

use std::{borrow::Cow, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::types::{Resource, quantity::Quantity};

// Only `cpu` and `memory` are recommended; policies may name any. A doc comment would be a description in the CRDs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub enum ResourceName {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// Any other resource, such as `ephemeral-storage`.
    Other(Box<str>),
}

impl ResourceName {
    /// The name as in objects.
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

impl From<Resource> for ResourceName {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Cpu => Self::Cpu,
            Resource::Memory => Self::Memory,
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

/// Initial capacity: nearly every list has CPU and memory.
const TYPICAL_LEN: usize = 2;

/// While a list is parsed, up to this many entries are inserted in order; more are sorted once at the end.
const MAX_ORDERED_INSERTS: usize = 16;

/// Quantities by resource, ordered by name. A vector, because a map node needs ten times the memory of the usual two
/// entries, and each container of each autoscaler has up to six lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(with = "std::collections::BTreeMap<String, Quantity>")]
pub struct ResourceList(Vec<(ResourceName, Quantity)>);

impl ResourceList {
    /// The empty list.
    pub const EMPTY: Self = Self(Vec::new());

    /// A list with CPU and memory, if set.
    pub fn cpu_and_memory(cpu: Option<Quantity>, memory: Option<Quantity>) -> Self {
        let cpu = cpu.map(|amount| (ResourceName::Cpu, amount));
        let memory = memory.map(|amount| (ResourceName::Memory, amount));
        Self(cpu.into_iter().chain(memory).collect())
    }

    /// Builds a list from unordered entries. The last entry of each name wins.
    fn keep_last_of_each(mut entries: Vec<(ResourceName, Quantity)>) -> Self {
        entries.reverse();
        entries.sort_by(|(left, _), (right, _)| left.as_str().cmp(right.as_str()));
        entries.dedup_by(|(left, _), (right, _)| left == right);
        Self(entries)
    }

    /// The quantity of a resource, if listed.
    pub fn get(&self, name: &ResourceName) -> Option<Quantity> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, amount)| amount)
    }

    /// The quantity of CPU, if listed.
    pub fn cpu(&self) -> Option<Quantity> {
        self.get(&ResourceName::Cpu)
    }

    /// The quantity of memory, if listed.
    pub fn memory(&self) -> Option<Quantity> {
        self.get(&ResourceName::Memory)
    }

    /// Sets the quantity of a resource, and returns the previous one.
    pub fn insert(&mut self, name: ResourceName, amount: Quantity) -> Option<Quantity> {
        match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name.as_str())) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, amount)),
            Err(index) => {
                if self.0.is_empty() {
                    // By default a vector allocates four entries, and there are several lists in each of thousands of pods.
                    self.0.reserve_exact(TYPICAL_LEN);
                }
                self.0.insert(index, (name, amount));
                None
            }
        }
    }

    /// Adds the entries of another list. Of two quantities of a resource `pick` chooses.
    pub fn merge(&mut self, from: &Self, pick: impl Fn(Quantity, Quantity) -> Quantity) {
        for (name, amount) in from.iter() {
            let amount = self.get(name).map_or(amount, |known| pick(known, amount));
            self.insert(name.clone(), amount);
        }
    }

    /// Removes a resource from the list, and returns its quantity.
    pub fn remove(&mut self, name: &ResourceName) -> Option<Quantity> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(index).1)
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, ordered by name, with mutable quantities.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ResourceName, &mut Quantity)> {
        self.0.iter_mut().map(|(name, amount)| (&*name, amount))
    }

    /// All entries, ordered by name.
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
        list.extend(entries);
        list
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
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
                    // The number of entries is user input: sort long lists once instead of inserting each entry.
                    if list.0.len() >= MAX_ORDERED_INSERTS {
                        let mut entries = list.0;
                        entries.push((name, amount));
                        while let Some(entry) = map.next_entry()? {
                            entries.push(entry);
                        }
                        return Ok(ResourceList::keep_last_of_each(entries));
                    }
                    list.insert(name, amount);
                }
                Ok(list)
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_the_order_of_names_and_the_last_amounts() {
        let json = r#"{"memory":"1Gi","example.com/gpu":1,"cpu":0.5,"memory":"2Gi"}"#;
        let list: ResourceList = serde_json::from_str(json).expect("a list");
        assert_eq!(list.cpu().expect("cpu").to_string(), "500m");
        assert_eq!(
            serde_json::to_string(&list).expect("serialises"),
            r#"{"cpu":"500m","example.com/gpu":"1","memory":"2Gi"}"#
        );
    }

    #[test]
    fn a_long_list_keeps_the_order_of_names_and_the_last_amounts() {
        let entries = |amount: usize| (0..40).rev().map(move |n| format!(r#""r{n:02}":{amount}"#));
        let json = entries(1).chain(entries(2)).collect::<Vec<_>>().join(",");
        let list: ResourceList = serde_json::from_str(&format!("{{{json}}}")).expect("a list");
        let read: Vec<String> =
            list.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
        assert_eq!(read, (0..40).map(|n| format!("r{n:02} 2")).collect::<Vec<_>>());
    }

    #[test]
    fn an_invalid_amount_is_named_in_the_error() {
        let error = serde_json::from_str::<ResourceList>(r#"{"cpu":"lots"}"#)
            .expect_err("not an amount")
            .to_string();
        assert!(error.starts_with(r#""lots" is not a quantity"#), "{error}");
    }
}
