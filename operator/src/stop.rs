//! When to stop, for everybody who has to.

use std::future::Future;
use tokio::sync::watch;

/// Says when to stop.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Is told when to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stopper {
    /// One, and what it tells.
    pub fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Stop(receiver))
    }

    /// Tells everybody.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// It was told already.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is told; also if there is nobody left to tell it.
    pub fn told(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut receiver = self.0.clone();
        async move {
            let _ = receiver.wait_for(|told| *told).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn everybody_is_told_also_who_asks_late() {
        let (stopper, stop) = Stopper::new();
        let early = stop.told();
        assert!(stop.told().now_or_never().is_none());
        stopper.stop();
        assert_eq!(early.now_or_never(), Some(()));
        assert_eq!(stop.told().now_or_never(), Some(()));
        assert!(stop.is_told());
    }

    #[test]
    fn who_is_left_alone_stops() {
        let (stopper, stop) = Stopper::new();
        drop(stopper);
        assert_eq!(stop.told().now_or_never(), Some(()));
    }
}
