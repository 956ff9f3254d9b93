//! The order of writes under a rate limit, on virtual time.

use std::sync::Mutex as Shared;

use tokio::time::sleep;

use super::*;
use crate::cluster::{leader::Fence, write::RateLimiter};

/// A write of a test: which part, and a number to tell versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestWrite {
    Up(u32),
    Down(u32),
    Status(u32),
    Event(u32),
}

use TestWrite::{Down, Event, Status, Up};

impl QueuedWrite for TestWrite {
    fn part(&self) -> WritePart {
        match self {
            Up(_) | Down(_) => WritePart::Scale,
            Status(_) => WritePart::Status,
            Event(_) => WritePart::Event,
        }
    }

    fn adds_replicas(&self) -> bool {
        matches!(self, Up(_))
    }

    fn requests(&self) -> usize {
        if self.part() == WritePart::Scale { 2 } else { 1 }
    }
}

type Made = Vec<(String, TestWrite)>;

/// A queue whose writes take `duration` each.
struct Fixture {
    queue: Arc<WriteQueue<TestWrite>>,
    made: Arc<Shared<Made>>,
    fence: Fence,
    permit: Permit,
}

impl Fixture {
    fn new(qps: f32, duration: Duration) -> Self {
        let (queue, made) = (Arc::new(WriteQueue::default()), Arc::new(Shared::new(Vec::new())));
        let fence = Fence::open();
        let permit = Permit::new(fence.clone(), RateLimiter::new(qps, 1));
        let fixture = Self { queue, made, fence, permit };
        let (queue, made) = (Arc::clone(&fixture.queue), Arc::clone(&fixture.made));
        let permit = fixture.permit.clone();
        tokio::spawn(async move {
            let run = |key: ObjectKey, write: TestWrite, prepaid: PrepaidPermit| {
                let (queue, made) = (Arc::clone(&queue), Arc::clone(&made));
                async move {
                    let name = format!("{}/{}", key.namespace, key.name);
                    for _ in 0..write.requests() {
                        if prepaid.acquire().await.is_err() {
                            queue.finish(&key, |_| {});
                            return;
                        }
                        sleep(duration).await;
                    }
                    made.lock().expect("no panic").push((name, write));
                    match write.part() {
                        WritePart::Scale => {
                            queue.finish_scale(&key, |_| ());
                        }
                        WritePart::Event => {}
                        _ => queue.finish(&key, |_| {}),
                    }
                }
            };
            queue.run(&permit, 4, run, std::future::pending()).await;
        });
        fixture
    }

    fn put(&self, namespace: &str, name: &str, write: TestWrite) {
        assert!(self.queue.put(&ObjectKey::new(namespace, name), write), "the queue is not full");
    }

    /// Waits until all writes are made, and returns them.
    async fn all(&self) -> Made {
        self.queue.drain(Instant::now() + Duration::from_mins(10)).await;
        assert!(self.queue.is_idle());
        std::mem::take(&mut *self.made.lock().expect("no panic"))
    }

    async fn writes(&self) -> Vec<TestWrite> {
        self.all().await.into_iter().map(|(_, write)| write).collect()
    }

    /// The number of writes that are made within a time.
    async fn count_after(&self, millis: u64) -> usize {
        sleep(Duration::from_millis(millis)).await;
        self.made.lock().expect("no panic").len()
    }
}

#[tokio::test(start_paused = true)]
async fn scale_ups_go_before_scale_downs_before_statuses_before_events() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    fixture.permit.acquire().await.expect("the fence is open");
    for number in 0..5 {
        fixture.put("shop", &format!("a{number}"), Event(number));
        fixture.put("shop", &format!("b{number}"), Status(number));
        fixture.put("shop", &format!("c{number}"), Down(number));
        fixture.put("shop", &format!("d{number}"), Up(number));
    }
    let classes: Vec<u8> = fixture
        .writes()
        .await
        .into_iter()
        .map(|write| WriteClass::of(write.part(), write.adds_replicas()) as u8)
        .collect();
    assert_eq!(classes.len(), 20);
    assert!(classes.is_sorted(), "{classes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_up_that_comes_while_statuses_wait_is_the_next_write() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    for number in 0..20 {
        fixture.put("shop", &format!("a{number}"), Status(number));
    }
    sleep(Duration::from_millis(550)).await;
    let before = fixture.made.lock().expect("no panic").len();
    fixture.put("shop", "b", Up(0));
    let made = fixture.writes().await;
    assert_eq!(made[before], Up(0), "after {before}: {made:?}");
}

#[tokio::test(start_paused = true)]
async fn a_newer_write_replaces_one_that_waits() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    fixture.permit.acquire().await.expect("the fence is open");
    for number in 0..100 {
        fixture.put("shop", "a", Status(number));
        fixture.put("shop", "b", if number % 2 == 0 { Up(number) } else { Down(number) });
    }
    assert_eq!(fixture.writes().await, [Down(99), Status(99)]);
}

#[tokio::test(start_paused = true)]
async fn a_status_never_goes_before_the_scale_that_it_reports() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    fixture.permit.acquire().await.expect("the fence is open");
    fixture.put("shop", "a", Status(1));
    fixture.put("shop", "a", Down(1));
    // The status of before is part of what the scale's own status reports.
    assert_eq!(fixture.writes().await, [Down(1)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_decided_while_a_scale_was_written_is_dropped() {
    let fixture = Fixture::new(1000.0, Duration::from_secs(1));
    fixture.put("shop", "a", Up(1));
    sleep(Duration::from_millis(500)).await;
    assert!(fixture.queue.is_in_flight(&ObjectKey::new("shop", "a")));
    fixture.put("shop", "a", Status(2));
    fixture.put("shop", "a", Up(2));
    assert_eq!(fixture.writes().await, [Up(1)]);
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_object_are_made_one_after_the_other() {
    let fixture = Fixture::new(1000.0, Duration::from_secs(1));
    let start = Instant::now();
    fixture.put("shop", "a", Status(1));
    sleep(Duration::from_millis(100)).await;
    fixture.put("shop", "a", Status(2));
    fixture.put("shop", "b", Status(3));
    assert_eq!(fixture.writes().await, [Status(1), Status(3), Status(2)]);
    assert!(start.elapsed() >= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_within_a_class() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    fixture.permit.acquire().await.expect("the fence is open");
    for number in 0..300 {
        fixture.put("large", &format!("a{number}"), Status(number));
    }
    for number in 0..3 {
        fixture.put("small", &format!("a{number}"), Status(number));
        fixture.put("other", &format!("a{number}"), Status(number));
    }
    let made = fixture.all().await;
    let others = made.iter().take(10).filter(|(name, _)| !name.starts_with("large")).count();
    assert_eq!(others, 6, "{:?}", &made[..10]);
}

#[tokio::test]
async fn events_of_one_namespace_leave_room_for_those_of_others() {
    let queue = WriteQueue::<TestWrite>::default();
    let put = |namespace: &str| {
        let key = ObjectKey::new(namespace, "a");
        (0..1000).filter(|number| queue.put(&key, Event(*number))).count()
    };
    let counts: Vec<usize> = ["a", "b", "c", "d", "e"].into_iter().map(put).collect();
    assert_eq!(counts, [256, 256, 256, 256, 0]);
    // Events do not take the room of scales and statuses.
    assert!(queue.put(&ObjectKey::new("e", "a"), Up(1)));
}

#[tokio::test(start_paused = true)]
async fn queueing_waits_for_nothing() {
    let fixture = Fixture::new(0.01, Duration::ZERO);
    let start = Instant::now();
    for number in 0..2000 {
        fixture.put("shop", &format!("a{number}"), Up(number));
        tokio::task::yield_now().await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_writes_that_wait() {
    let fixture = Fixture::new(1.0, Duration::ZERO);
    for number in 0..10 {
        fixture.put("shop", &format!("a{number}"), Status(number));
    }
    sleep(Duration::from_millis(2500)).await;
    fixture.fence.revoke();
    assert_eq!(fixture.all().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cancelled_writes_are_not_made_and_take_no_room() {
    let fixture = Fixture::new(10.0, Duration::ZERO);
    fixture.permit.acquire().await.expect("the fence is open");
    let key = ObjectKey::new("shop", "a");
    for number in 0..1000 {
        fixture.put("shop", "a", Up(number));
        fixture.queue.cancel(&key, WritePart::Scale);
    }
    fixture.put("shop", "a", Status(1));
    assert!(fixture.queue.inner.lock().classes.iter().map(|class| class.len).sum::<usize>() == 1);
    assert_eq!(fixture.writes().await, [Status(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_status_waits_for_a_running_reconcile_and_its_scale_goes_first() {
    let fixture = Fixture::new(1000.0, Duration::ZERO);
    let reconcile = fixture.queue.expect_scale();
    fixture.put("shop", "a", Status(1));
    fixture.put("shop", "b", Event(1));
    assert_eq!(fixture.count_after(90).await, 0);
    fixture.put("shop", "c", Up(1));
    drop(reconcile);
    assert_eq!(fixture.writes().await, [Up(1), Status(1), Event(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_status_waits_for_a_scale_that_is_being_written() {
    let fixture = Fixture::new(1000.0, Duration::from_millis(20));
    fixture.put("shop", "a", Up(1));
    sleep(Duration::from_millis(5)).await;
    fixture.put("shop", "b", Status(1));
    assert_eq!(fixture.writes().await, [Up(1), Status(1)], "the scale takes longer");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reconcile_delays_statuses_only_at_its_beginning() {
    let fixture = Fixture::new(1000.0, Duration::ZERO);
    let _reconcile = fixture.queue.expect_scale();
    fixture.put("shop", "a", Status(1));
    assert_eq!(fixture.count_after(95).await, 0);
    assert_eq!(fixture.count_after(10).await, 1);
    fixture.put("shop", "a", Status(2));
    assert_eq!(fixture.count_after(10).await, 2);
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_always_busy_delay_statuses_once() {
    let fixture = Fixture::new(1000.0, Duration::ZERO);
    let queue = Arc::clone(&fixture.queue);
    tokio::spawn(async move {
        let mut last = queue.expect_scale();
        loop {
            sleep(Duration::from_millis(10)).await;
            drop(std::mem::replace(&mut last, queue.expect_scale()));
        }
    });
    sleep(Duration::from_secs(1)).await;
    fixture.put("shop", "a", Status(1));
    assert_eq!(fixture.count_after(240).await, 0);
    assert_eq!(fixture.count_after(20).await, 1);
    for number in 0..10 {
        fixture.put("shop", &format!("b{number}"), Status(number));
    }
    assert_eq!(fixture.count_after(100).await, 11);
}

#[tokio::test(start_paused = true)]
async fn a_scale_neither_waits_for_reconciles_nor_for_a_token_that_a_delayed_status_has() {
    for is_cancelled in [false, true] {
        let fixture = Fixture::new(1.0, Duration::ZERO);
        let reconcile = fixture.queue.expect_scale();
        fixture.put("shop", "a", Status(1));
        // The only token of the first second is taken.
        assert_eq!(fixture.count_after(10).await, 0);
        if is_cancelled {
            fixture.queue.cancel(&ObjectKey::new("shop", "a"), WritePart::Status);
        }
        fixture.put("shop", "b", Up(1));
        // It needs two.
        assert_eq!(fixture.count_after(1500).await, 1);
        drop(reconcile);
        let made = fixture.writes().await;
        assert_eq!((made[0], made.len()), (Up(1), 2 - usize::from(is_cancelled)));
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_that_end_while_nothing_waits_delay_nothing() {
    let fixture = Fixture::new(1000.0, Duration::ZERO);
    for _ in 0..100 {
        drop(fixture.queue.expect_scale());
    }
    fixture.put("shop", "a", Status(1));
    assert_eq!(fixture.count_after(10).await, 1);
}
