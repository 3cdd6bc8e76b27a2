//! Thread pool of experiments, which distributes runs over cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies `work` to every item, on as many threads as there are CPUs. Calls the progress function
/// after each item with the number of items done and the number of all items. Results are in the
/// order of the items.
///
/// # Panics
/// Panics when `work` does.
pub(crate) fn deal<T: Sync, R: Send>(
    items: &[T],
    progress: &(dyn Fn(usize, usize) + Sync),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let total = items.len();
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(total);
    progress(0, total);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = work(item);
                    *results[number].lock().expect("no work panics") = Some(result);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
                }
            });
        }
    });
    let taken = results.into_iter().map(|result| result.into_inner().expect("no work panics"));
    taken.map(|result| result.expect("every item was worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_each_is_told_once() {
        let items: Vec<u64> = (0..100).collect();
        let told = Mutex::new(Vec::new());
        let squares = deal(&items, &|done, of| told.lock().unwrap().push((done, of)), |n| n * n);
        assert_eq!(squares, items.iter().map(|n| n * n).collect::<Vec<_>>());
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, (0..=100).map(|done| (done, 100)).collect::<Vec<_>>());
        assert!(deal(&[], &|_, _| (), |n: &u64| *n).is_empty());
    }
}
