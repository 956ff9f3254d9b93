//! Keeps what all containers of a pod are told to request together within what a pod may have: the largest
//! node, or a limit that the operator set.

use super::{
    explanation::Reason,
    policy::Amounts,
    recommendation::{ContainerRecommendation, Recommendation},
};
use crate::quantity::Quantity;

/// How one resource of a recommendation is reached.
struct Lens {
    pick: fn(&mut Amounts) -> &mut Option<Quantity>,
    blame: fn(&mut ContainerRecommendation),
}

const CPU: Lens = Lens {
    pick: |amounts| &mut amounts.cpu,
    blame: |said| {
        if let Some(why) = &mut said.explanation.cpu {
            why.target.decided_by = Reason::PodRoom;
        }
    },
};

const MEMORY: Lens = Lens {
    pick: |amounts| &mut amounts.memory,
    blame: |said| {
        if let Some(why) = &mut said.explanation.memory {
            why.target.decided_by = Reason::PodRoom;
        }
    },
};

/// Scales the numbers of all containers down in proportion where their sum is more than the room. What the
/// policy says of single containers gives way: a pod that fits nowhere helps nobody. The uncapped targets
/// stay, and show what was wanted.
pub fn fit(said: &mut Recommendation, room: Amounts) {
    if let Some(cpu) = room.cpu {
        // Whole millicores.
        fit_one(
            said,
            &CPU,
            cpu,
            |quantity| quantity.milli_value(),
            |amount| Quantity::cpu(crate::units::MilliCpu(amount)),
        );
    }
    if let Some(memory) = room.memory {
        fit_one(
            said,
            &MEMORY,
            memory,
            |quantity| quantity.value(),
            |amount| Quantity::memory(crate::units::Bytes(amount)),
        );
    }
}

fn fit_one(
    said: &mut Recommendation,
    lens: &Lens,
    room: Quantity,
    amount: fn(Quantity) -> i64,
    quantity: fn(i64) -> Quantity,
) {
    let numbers: [fn(&mut ContainerRecommendation) -> &mut Amounts; 3] =
        [|said| &mut said.lower, |said| &mut said.target, |said| &mut said.upper];
    let room = i128::from(amount(room).max(0));
    for (index, number) in numbers.into_iter().enumerate() {
        let sum: i128 = said
            .containers
            .iter_mut()
            .filter_map(|one| *(lens.pick)(number(one)))
            .map(|each| i128::from(amount(each)))
            .sum();
        if sum <= room {
            continue;
        }
        for one in &mut said.containers {
            let slot = (lens.pick)(number(one));
            let Some(each) = *slot else { continue };
            // Rounded down, so that the sum cannot exceed the room.
            let share = i128::from(amount(each)) * room / sum;
            *slot = Some(quantity(i64::try_from(share).unwrap_or(i64::MAX)));
            if index == 1 {
                (lens.blame)(one);
            }
        }
    }
}

/// Whether the room held any target down.
pub fn restricts(said: &Recommendation) -> bool {
    let held = |why: &Option<super::ResourceExplanation>| {
        why.as_ref().is_some_and(|why| why.target.decided_by == Reason::PodRoom)
    };
    said.containers.iter().any(|one| held(&one.explanation.cpu) || held(&one.explanation.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, cpu: &str, memory: &str) -> ContainerRecommendation {
        let amounts = Amounts { cpu: cpu.parse().ok(), memory: memory.parse().ok() };
        ContainerRecommendation {
            container: name.into(),
            target: amounts,
            lower: amounts,
            upper: amounts,
            uncapped: amounts,
            explanation: super::super::Explanation::default(),
        }
    }

    #[test]
    fn containers_share_the_room_of_their_pod_in_proportion() {
        let containers = vec![container("a", "3", "1Gi"), container("b", "1", "1Gi")];
        let mut said = Recommendation { containers, stale: Vec::new() };
        fit(&mut said, Amounts { cpu: "2".parse().ok(), memory: "4Gi".parse().ok() });
        let cpu: Vec<String> = said
            .containers
            .iter()
            .filter_map(|one| one.target.cpu)
            .map(|q| q.to_string())
            .collect();
        assert_eq!(cpu, ["1500m", "500m"]);
        for one in &said.containers {
            assert_eq!(one.target.memory.map(|q| q.to_string()).as_deref(), Some("1Gi"));
        }
        assert_eq!(said.containers[0].uncapped.cpu.map(|q| q.to_string()).as_deref(), Some("3"));
    }
}
