//! What is edited, and what is not.

use crate::rightsizing::survey::Resource;

use super::problem::Problem;

/// How many workloads a summary names.
const NAMED: usize = 10;

/// The edits of a set of manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditPlan {
    /// The files that change, in the order of their paths.
    pub files: Vec<EditedFile>,
    /// What is not edited, in the order of files and lines.
    pub problems: Vec<Problem>,
    /// The workloads that should change and are in no file, as `shop/search`, in the order of the report.
    pub missing: Vec<String>,
    /// Where the resources of the containers of the report are, in the order of the report.
    pub placements: Vec<Placement>,
}

/// A file that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedFile {
    /// Its path, as it was added.
    pub path: Box<str>,
    /// Its text as it is.
    pub before: String,
    /// Its text with the edits.
    pub after: String,
    /// The number of values that change.
    pub values: usize,
}

/// Where a resource of a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The path of the file.
    pub file: Box<str>,
    /// The line, from 1.
    pub line: usize,
    /// The index of the workload in the report.
    pub workload: usize,
    /// The index of the container in the workload.
    pub container: usize,
    /// CPU or memory.
    pub resource: Resource,
}

impl EditPlan {
    /// One line: `1 file, 2 values. 3 workloads of the cluster are in no file: shop/search, ml/embed,
    /// infra/logs.`
    pub fn summary(&self) -> String {
        let values: usize = self.files.iter().map(|file| file.values).sum();
        let mut text = if self.files.is_empty() {
            "No file changes.".to_owned()
        } else {
            format!("{}, {}.", count(self.files.len(), "file"), count(values, "value"))
        };
        if !self.problems.is_empty() {
            text.extend([" ", &count(self.problems.len(), "problem"), "."]);
        }
        if !self.missing.is_empty() {
            let is = if self.missing.len() == 1 { "is" } else { "are" };
            let workloads = count(self.missing.len(), "workload");
            let named = self.missing[..self.missing.len().min(NAMED)].join(", ");
            text.extend([" ", &workloads, " of the cluster ", is, " in no file: ", &named]);
            if self.missing.len() > NAMED {
                text.extend([format!(" and {} more", self.missing.len() - NAMED)]);
            }
            text.push('.');
        }
        text
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_and_names() {
        let file =
            EditedFile { path: "a".into(), before: String::new(), after: String::new(), values: 2 };
        let mut plan = EditPlan { files: vec![file], ..EditPlan::default() };
        assert_eq!(plan.summary(), "1 file, 2 values.");
        plan.missing = ["shop/search", "ml/embed", "infra/logs"].map(str::to_owned).to_vec();
        assert_eq!(
            plan.summary(),
            "1 file, 2 values. 3 workloads of the cluster are in no file: shop/search, ml/embed, infra/logs."
        );
        plan.files.clear();
        plan.missing = (0..12).map(|index| format!("a/{index}")).collect();
        assert!(plan.summary().ends_with("a/8, a/9 and 2 more."), "{}", plan.summary());
        assert!(plan.summary().starts_with("No file changes. 12 workloads"));
    }
}
