//! Order of disks: the assignment of columns to slots with the largest sum of scores.

/// Assignment of one column to each slot that has the largest sum of scores, which are given by
/// slot and then by column. Costs `2^n * n` steps for `n` slots.
pub(super) fn best(scores: &[Vec<u64>]) -> Vec<usize> {
    let slots = scores.len();
    let all = 1_usize << slots;
    // Best sum for the first slots, by the set of columns that they use.
    let mut sums = vec![None::<(u64, usize)>; all];
    sums[0] = Some((0, 0));
    for set in 0..all {
        let (Some((sum, _)), slot) = (sums[set], set.count_ones() as usize) else { continue };
        let Some(row) = scores.get(slot) else { continue };
        for (column, score) in row.iter().enumerate().filter(|(it, _)| set >> it & 1 == 0) {
            let next = &mut sums[set | 1 << column];
            if next.is_none_or(|(other, _)| sum + score > other) {
                *next = Some((sum + score, column));
            }
        }
    }
    let (mut set, mut order) = (all - 1, Vec::new());
    while let Some((_, column)) = sums[set].filter(|_| set > 0) {
        order.push(column);
        set &= !(1 << column);
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn the_order_has_the_largest_sum_and_not_the_largest_first() {
        assert_eq!(best(&[vec![5, 4, 0], vec![5, 0, 0], vec![0, 0, 1]]), [1, 0, 2]);
        assert_eq!(best(&[vec![0, 0], vec![9, 0]]), [1, 0]);
        assert_eq!(best(&[vec![0; 16]; 1][..0]), Vec::<usize>::new());
    }
}
