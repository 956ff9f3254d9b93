//! The bill of materials of the program: CycloneDX 1.6, from what cargo resolves.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What `cargo metadata` prints.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `dev` or `build`; `None` for what is linked.
    kind: Option<String>,
}

/// The part of `Cargo.lock` that has the checksums.
#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The names and versions of packages. `cargo metadata` merges the features of all dependencies, those of tests too, and has
/// procedural macros beside what is linked; `cargo tree` tells them apart.
#[derive(Debug)]
pub struct Linked(BTreeSet<(String, String)>);

impl Linked {
    /// From the output of `cargo tree --prefix=none`, in which a line is `name v1.2.3`, and more if it is a path or a
    /// repetition.
    pub fn of(tree: &str) -> Self {
        let lines = tree.lines().filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
        });
        Self(lines.collect())
    }

    fn has(&self, package: &Package) -> bool {
        self.0.contains(&(package.name.clone(), package.version.clone()))
    }
}

/// The packages whose code is in the program `name`, each with what it depends on.
fn linked<'a>(
    metadata: &'a Metadata,
    name: &str,
    linked: &Linked,
) -> Result<Vec<(&'a Package, Vec<&'a str>)>> {
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (&*package.id, package)).collect();
    let root = metadata.packages.iter().find(|package| package.name == name);
    let root = root.with_context(|| format!("cargo knows no package {name}"))?;
    let mut seen = BTreeSet::from([&*root.id]);
    let mut pending = vec![&*root.id];
    let mut found = Vec::new();
    while let Some(id) = pending.pop() {
        let node = nodes.get(id).with_context(|| format!("cargo does not resolve {id}"))?;
        let children = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|dependency| dependency.kind.is_none())
                && packages.get(&*dependency.pkg).is_some_and(|package| linked.has(package))
        });
        let children: Vec<&str> = children.map(|dependency| &*dependency.pkg).collect();
        pending.extend(children.iter().copied().filter(|child| seen.insert(child)));
        let package = packages.get(id).with_context(|| format!("cargo describes no {id}"))?;
        found.push((*package, children));
    }
    // The program first, all others by name.
    found[1..].sort_by(|(one, _), (other, _)| {
        (&one.name, &one.version).cmp(&(&other.name, &other.version))
    });
    Ok(found)
}

fn package_url(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// The bill of materials of a program. It has no time and no random number, so that equal sources have equal bills.
pub fn bill(
    metadata: &Metadata,
    lock: &str,
    name: &str,
    linked_packages: &Linked,
    program: &[u8],
) -> Result<Value> {
    let lock: Lock = toml::from_str(lock).context("Cargo.lock")?;
    let checksums: BTreeMap<(&str, &str), &str> = lock
        .package
        .iter()
        .filter_map(|one| Some(((&*one.name, &*one.version), one.checksum.as_deref()?)))
        .collect();
    let linked = linked(metadata, name, linked_packages)?;
    let urls: BTreeMap<&str, String> =
        metadata.packages.iter().map(|package| (&*package.id, package_url(package))).collect();
    let component = |package: &Package, kind: &str| {
        let url = package_url(package);
        let mut component = json!({
            "type": kind, "bom-ref": url, "name": package.name, "version": package.version,
        });
        if let Some(license) = &package.license {
            // cargo allows `/` for OR.
            let expression = license.replace('/', " OR ");
            component["licenses"] = json!([{"expression": expression}]);
        }
        if package.source.is_some() {
            component["purl"] = json!(url);
        }
        if let Some(checksum) = checksums.get(&(&*package.name, &*package.version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    };
    let (root, _) = linked.first().context("no package")?;
    let digest = format!("{:x}", Sha256::digest(program));
    let mut described = component(root, "application");
    described["hashes"] = json!([{"alg": "SHA-256", "content": digest}]);
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|(package, children)| {
            let children: BTreeSet<&str> =
                children.iter().filter_map(|child| urls.get(child)).map(String::as_str).collect();
            json!({"ref": package_url(package), "dependsOn": children})
        })
        .collect();
    let components: Vec<Value> =
        linked.iter().skip(1).map(|(package, _)| component(package, "library")).collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", uuid_of(&digest)),
        "version": 1,
        "metadata": {"component": described},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// A UUID of version 8 (RFC 9562: of the writer's own kind) from the digest of the program.
fn uuid_of(digest: &str) -> String {
    let variant = match digest.as_bytes()[16] {
        b'0' | b'4' | b'8' | b'c' => '8',
        b'1' | b'5' | b'9' | b'd' => '9',
        b'2' | b'6' | b'a' | b'e' => 'a',
        _ => 'b',
    };
    format!(
        "{}-{}-8{}-{variant}{}-{}",
        &digest[..8],
        &digest[8..12],
        &digest[13..16],
        &digest[17..20],
        &digest[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        serde_json::from_value(json!({
            "packages": [
                {"id": "path#tool", "name": "tool", "version": "1.0.0", "license": "Apache-2.0", "source": null},
                {"id": "registry#used", "name": "used", "version": "2.1.0", "license": "MIT/Apache-2.0",
                 "source": "registry+https://example.com"},
                {"id": "registry#deep", "name": "deep", "version": "0.3.0", "license": "MIT",
                 "source": "registry+https://example.com"},
                {"id": "registry#tests", "name": "tests", "version": "0.1.0", "license": "MIT",
                 "source": "registry+https://example.com"},
                {"id": "registry#macros", "name": "macros", "version": "0.1.0", "license": "MIT",
                 "source": "registry+https://example.com"},
                {"id": "registry#builds", "name": "builds", "version": "0.1.0", "license": "MIT",
                 "source": "registry+https://example.com"},
            ],
            "resolve": {"nodes": [
                {"id": "path#tool", "deps": [
                    {"pkg": "registry#used", "dep_kinds": [{"kind": null}, {"kind": "dev"}]},
                    {"pkg": "registry#tests", "dep_kinds": [{"kind": "dev"}]},
                    {"pkg": "registry#macros", "dep_kinds": [{"kind": null}]},
                    {"pkg": "registry#builds", "dep_kinds": [{"kind": "build"}]},
                ]},
                {"id": "registry#used", "deps": [{"pkg": "registry#deep", "dep_kinds": [{"kind": null}]}]},
                {"id": "registry#deep", "deps": []},
                {"id": "registry#tests", "deps": []},
                {"id": "registry#builds", "deps": []},
                {"id": "registry#macros", "deps": []},
            ]},
        }))
        .expect("metadata")
    }

    const TREE: &str =
        "tool v1.0.0 (/src)\nused v2.1.0\ndeep v0.3.0\nused v2.1.0 (*)\ntests v0.1.0\n";
    const LOCK: &str = "[[package]]\nname = \"used\"\nversion = \"2.1.0\"\nchecksum = \"abc\"\n";

    #[test]
    fn the_bill_has_what_is_linked_and_not_what_builds_or_tests_it() {
        let bill = bill(&metadata(), LOCK, "tool", &Linked::of(TREE), b"program").expect("a bill");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|component| component["name"].as_str())
            .collect();
        assert_eq!(names, ["deep", "used"]);
        assert_eq!(bill["components"][1]["purl"], "pkg:cargo/used@2.1.0");
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(
            bill["dependencies"],
            json!([
                {"ref": "pkg:cargo/tool@1.0.0", "dependsOn": ["pkg:cargo/used@2.1.0"]},
                {"ref": "pkg:cargo/deep@0.3.0", "dependsOn": []},
                {"ref": "pkg:cargo/used@2.1.0", "dependsOn": ["pkg:cargo/deep@0.3.0"]},
            ])
        );
        let digest = format!("{:x}", Sha256::digest(b"program"));
        assert_eq!(bill["metadata"]["component"]["hashes"][0]["content"], digest);
        assert!(bill["metadata"]["component"].get("purl").is_none(), "it is in no registry");
    }

    #[test]
    fn the_serial_number_is_a_uuid() {
        let uuid = uuid_of(&format!("{:x}", Sha256::digest(b"program")));
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(uuid[14..].starts_with('8') && "89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
