//! Tests of the sparse map, compared with a B-tree.

use super::*;

use weft_units::rng::Rng;

#[test]
fn it_is_an_ordered_map_under_any_sequence_of_changes() {
    let mut rng = Rng::new(29);
    let (mut sparse, mut model) = (Sparse::default(), BTreeMap::new());
    let (mut inserted, mut removed, mut walked) = (0, 0, 0);
    for step in 0..20_000_u64 {
        // Numbers that are close to each other, far away, and the last one.
        let number = match rng.below(20) {
            0 => u64::MAX - rng.below(3),
            1..6 => rng.below(1 << 40),
            _ => rng.below(400),
        };
        match rng.below(4) {
            0 | 1 => {
                let value = *sparse.get_or_insert_with(number, || step);
                inserted += u64::from(!model.contains_key(&number));
                assert_eq!(value, *model.entry(number).or_insert(step));
            }
            2 => {
                let value = model.remove(&number);
                removed += u64::from(value.is_some());
                assert_eq!(sparse.remove(number), value);
            }
            _ => {
                let end = number.saturating_add(rng.below(300));
                let expected: Vec<_> = model.range(number..end).map(|it| (*it.0, *it.1)).collect();
                walked += expected.len();
                let found: Vec<_> = sparse.iter(number..end).map(|it| (it.0, *it.1)).collect();
                assert_eq!(found, expected, "{number}..{end}");
                sparse.each_mut(number..end, |_, value| *value += 1);
                model.range_mut(number..end).for_each(|(_, value)| *value += 1);
            }
        }
        assert_eq!(sparse.get(number), model.get(&number));
    }
    assert!(inserted > 1000 && removed > 500 && walked > 10_000, "{inserted} {removed} {walked}");
    let all: Vec<_> = sparse.numbers(0..u64::MAX).collect();
    assert_eq!(all, model.range(..u64::MAX).map(|it| *it.0).collect::<Vec<_>>());
    assert_eq!(
        sparse.groups.values().map(|bits| bits.count_ones() as usize).sum::<usize>(),
        model.len()
    );
    assert_eq!(sparse.values().count(), model.len());
}
