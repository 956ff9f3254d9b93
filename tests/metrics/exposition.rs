//! Parses the text format as far as two programs are compared: families, types, labels and buckets.

use std::collections::BTreeMap;

/// A scrape, by family.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

/// A family. Labels are those of all its series, in alphabetical order, without `le` and the like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    pub kind: String,
    pub labels: Vec<String>,
    /// Bucket bounds of the first series, as they are written.
    pub buckets: Vec<String>,
    /// Label sets, in order, of all lines except those of buckets.
    pub series: Vec<String>,
}

impl Exposition {
    /// Panics if it is not in the text format, or if a family is split.
    pub fn parse(text: &str) -> Self {
        let mut families = BTreeMap::<String, Family>::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                name.clone_into(&mut current);
                let family = Family { kind: kind.to_owned(), ..Family::default() };
                assert!(families.insert(current.clone(), family).is_none(), "{name} is duplicated");
            } else if !line.starts_with('#') {
                let family = families.get_mut(&current).expect("a type comes first");
                let suffix = line.strip_prefix(current.as_str());
                family
                    .read(suffix.unwrap_or_else(|| panic!("{line} does not belong to {current}")));
            }
        }
        Self { families }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    pub fn family(&self, name: &str) -> &Family {
        self.families.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }
}

impl Family {
    fn read(&mut self, sample: &str) {
        let (series, value) = sample.rsplit_once(' ').expect("a value");
        value.replace("Inf", "inf").parse::<f64>().expect("a number");
        let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let pairs: Vec<_> = labels.split("\",").filter_map(|pair| pair.split_once("=\"")).collect();
        if let Some((_, bound)) = pairs.iter().find(|(name, _)| *name == "le") {
            let bound = bound.trim_end_matches('"').to_owned();
            if !self.buckets.contains(&bound) {
                self.buckets.push(bound);
            }
            return;
        }
        assert!(pairs.is_sorted(), "{sample}: labels are in alphabetical order");
        for (name, _) in pairs {
            if let Err(place) = self.labels.binary_search_by(|known| known.as_str().cmp(name)) {
                self.labels.insert(place, name.to_owned());
            }
        }
        self.series.push(labels.to_owned());
    }
}
