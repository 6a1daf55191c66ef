//! The few that were used last.

use std::collections::BTreeMap;

/// At most a number of values by key; the one that was not used for longest makes room for a new one.
#[derive(Debug)]
pub(super) struct Cache<V> {
    values: BTreeMap<u64, Used<V>>,
    capacity: usize,
    uses: u64,
}

#[derive(Debug)]
struct Used<V> {
    value: V,
    last: u64,
}

impl<V: Clone> Cache<V> {
    /// An empty one.
    pub(super) fn new(capacity: usize) -> Self {
        Self { values: BTreeMap::new(), capacity, uses: 0 }
    }

    pub(super) fn get(&mut self, key: u64) -> Option<V> {
        self.uses += 1;
        let used = self.values.get_mut(&key)?;
        used.last = self.uses;
        Some(used.value.clone())
    }

    pub(super) fn put(&mut self, key: u64, value: V) {
        self.uses += 1;
        // A walk through a few hundred costs nothing beside the system call that brought the value.
        while self.values.len() >= self.capacity && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, used)| used.last).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.values.remove(&oldest);
        }
        self.values.insert(key, Used { value, last: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut cache = Cache::new(2);
        cache.put(1, 'a');
        cache.put(2, 'b');
        assert_eq!(cache.get(1), Some('a'));
        cache.put(3, 'c');
        assert_eq!((cache.get(1), cache.get(2), cache.get(3)), (Some('a'), None, Some('c')));
    }

    #[test]
    fn new_value_of_a_key_takes_no_room() {
        let mut cache = Cache::new(2);
        cache.put(1, 'a');
        cache.put(2, 'b');
        cache.put(2, 'c');
        assert_eq!((cache.get(1), cache.get(2)), (Some('a'), Some('c')));
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut cache = Cache::new(0);
        cache.put(1, 'a');
        assert_eq!(cache.get(1), None);
    }
}
