//! What the new process does before it becomes the VM process, in this order.

/// User and group of VM processes, as in a launcher Pod.
pub const USER: u32 = 107;

/// How strictly a process can be locked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// By root.
    Root,
    /// By another user, in a user namespace.
    UserNamespace,
    /// Without namespaces.
    Plain,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The user is known as 107 inside.
    MapUser,
    /// Mounts made here are nobody else's.
    DetachMounts,
    /// The root directory is an empty one.
    EmptyRoot,
    /// The machine has another name.
    HostName,
    /// Standard descriptors, the link and the program are in their places, and no other is open.
    Descriptors,
    /// No core dump, few descriptors.
    Limits,
    /// No capability can be had again.
    Bounding,
    /// User and group are 107.
    User,
    /// No capability is left.
    Capabilities,
    /// No program gives more.
    NoNewPrivileges,
    /// It dies with whoever made it.
    DeathSignal,
    /// Signals reach it.
    Signals,
    /// It becomes the VM process.
    Execute,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 13] = [
        // First: everything below is done with the rights that come of it.
        Self::MapUser,
        // Before the first mount, which would reach the whole machine otherwise.
        Self::DetachMounts,
        Self::EmptyRoot,
        Self::HostName,
        // After the root directory, whose old one is open while it is exchanged.
        Self::Descriptors,
        Self::Limits,
        // While there is a capability to do it.
        Self::Bounding,
        Self::User,
        // After the user, whose change takes some away, and clears nothing that was inheritable.
        Self::Capabilities,
        Self::NoNewPrivileges,
        // After the user: a change of it clears the signal.
        Self::DeathSignal,
        Self::Signals,
        Self::Execute,
    ];

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::MapUser => "mapping its user",
            Self::DetachMounts => "detaching its mounts",
            Self::EmptyRoot => "giving it an empty root directory",
            Self::HostName => "giving it a host name",
            Self::Descriptors => "closing descriptors",
            Self::Limits => "setting limits",
            Self::Bounding => "dropping capabilities for good",
            Self::User => "changing its user",
            Self::Capabilities => "dropping capabilities",
            Self::NoNewPrivileges => "giving up new privileges",
            Self::DeathSignal => "tying it to its supervisor",
            Self::Signals => "letting signals through",
            Self::Execute => "executing its program",
        }
    }

    /// Whether it is taken.
    pub fn is_for(self, level: Level) -> bool {
        match self {
            Self::MapUser => level == Level::UserNamespace,
            Self::DetachMounts | Self::EmptyRoot | Self::HostName => level != Level::Plain,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(step: Step) -> usize {
        Step::ALL.iter().position(|other| *other == step).unwrap()
    }

    #[test]
    fn rights_are_given_up_in_an_order_that_leaves_none() {
        assert!(place(Step::DetachMounts) < place(Step::EmptyRoot));
        assert!(place(Step::Bounding) < place(Step::User));
        assert!(place(Step::User) < place(Step::Capabilities));
        assert!(place(Step::User) < place(Step::DeathSignal));
        assert_eq!(place(Step::Execute), Step::ALL.len() - 1);
    }

    #[test]
    fn without_namespaces_nothing_of_the_machine_is_changed() {
        for step in [Step::MapUser, Step::DetachMounts, Step::EmptyRoot, Step::HostName] {
            assert!(!step.is_for(Level::Plain));
            assert!(step.is_for(Level::UserNamespace));
        }
        assert!(!Step::MapUser.is_for(Level::Root));
    }
}
