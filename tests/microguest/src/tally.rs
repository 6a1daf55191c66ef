//! How a command ended that does a round again whenever it loses its connections.

/// What it says on its console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Rounds that came to their end.
    pub rounds: u64,
    /// How often it began one.
    pub attempts: u64,
    /// How often it was told that connections are gone.
    pub losses: u64,
}

impl Tally {
    /// What `command` said.
    pub fn of(command: &str, console: &str) -> Option<Self> {
        let start = format!("{command}: ");
        let line = console.lines().find_map(|line| line.strip_prefix(&start))?;
        let mut numbers = line.split(", ").map(|part| {
            let number = part.split_once(' ')?.0.strip_prefix("0x")?;
            u64::from_str_radix(number, 16).ok()
        });
        let mut next = || numbers.next().flatten();
        Some(Self { rounds: next()?, attempts: next()?, losses: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_the_command() {
        let console = "other: 0x7 rounds\nvsock: 0x0010 rounds, 0x0012 attempts, 0x0001 losses\n";
        let tally = Tally { rounds: 16, attempts: 18, losses: 1 };
        assert_eq!(Tally::of("vsock", console), Some(tally));
        assert_eq!(Tally::of("streams", console), None);
    }
}
