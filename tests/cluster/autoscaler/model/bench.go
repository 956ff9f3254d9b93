package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	vpamodel "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

const (
	vpas = 10_000
	each = 5
	days = 8
	mebi = 1 << 20
)

var start = time.Unix(1_767_225_600, 0).UTC()

// noise is the sequence of tests/model/mix.rs, so that both sides see the same samples.
type noise uint64

func newNoise(seed uint64) *noise {
	n := noise(seed*0x9e3779b97f4a7c15 | 1)
	return &n
}

func (n *noise) below(limit int64) int64 {
	x := uint64(*n)
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*n = noise(x)
	limit = max(limit, 1)
	return ((int64(x>>16) % limit) + limit) % limit
}

// live is one container of the mix over eight days. Upstream keeps an aggregate per label set; here it gets the
// best case, one for all pods of the container.
func live(number int, step time.Duration) *container {
	n := newNoise(uint64(number) + 1)
	kind := number % 20
	base := 20 + n.below(400)
	heap := (60 + n.below(900)) * mebi
	c := newContainer()
	for at := time.Duration(0); at < days*24*time.Hour; at += step {
		now, hour := start.Add(at), int64(at/time.Hour)
		replicas, short := 1, kind >= 17
		if kind < 7 {
			replicas = 3
		} else if kind < 13 {
			replicas = 2
		}
		if short && at%time.Hour == 0 {
			clear(c.pods)
		}
		for replica := range replicas {
			pod := fmt.Sprintf("workload-%d-6d4b9c7f5d-x7k2%d", number, replica)
			if short {
				pod = fmt.Sprintf("workload-%d-%05d-x7k2p", number, hour)
			}
			var cpu, memory int64
			switch {
			case kind < 7:
				cpu, memory = base+n.below(base/10+1), heap+n.below(heap/20)
			case kind < 13:
				busy := int64(1)
				if hour%24 >= 8 && hour%24 < 20 {
					busy = 4
				}
				cpu, memory = base*busy+n.below(base), heap+busy*heap/10
			case kind < 17:
				burst := int64(1)
				if n.below(50) == 0 {
					burst = 1 + n.below(20)
				}
				cpu, memory = base*burst, heap+n.below(heap*burst/8+1)
			default:
				cpu, memory = base*3+n.below(base), n.below(heap)+mebi
			}
			c.add(pod, now, cpu, vpamodel.ResourceCPU)
			c.add(pod, now, memory, vpamodel.ResourceMemory)
			if short && n.below(500) == 0 {
				_ = c.pod(pod).RecordOOM(now, vpamodel.ResourceAmount(heap))
			}
		}
	}
	return c
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func bench() {
	runtime.GOMAXPROCS(1)
	samples()
	before := heapInUse()
	cluster := make([]vpamodel.ContainerNameToAggregateStateMap, vpas)
	kept := make([]*container, 0, vpas*each)
	for v := range cluster {
		cluster[v] = vpamodel.ContainerNameToAggregateStateMap{}
		for c := range each {
			state := live(v*each+c, 10*time.Minute)
			kept = append(kept, state)
			cluster[v][fmt.Sprintf("container-%d", c)] = state.aggregate
		}
	}
	figure("bytes per container, keys included", float64(heapInUse()-before)/(vpas*each))
	var runs []time.Duration
	estimator := logic.CreatePodResourceRecommender(defaults())
	for range 7 {
		begin := time.Now()
		for _, states := range cluster {
			// Upstream merges the aggregates of a VPA into fresh ones on every pass.
			merged := vpamodel.ContainerNameToAggregateStateMap{}
			for name, state := range states {
				fresh := vpamodel.NewAggregateContainerState()
				fresh.MergeContainerState(state)
				merged[name] = fresh
			}
			estimator.GetRecommendedPodResources(merged)
		}
		runs = append(runs, time.Since(begin))
	}
	slices.Sort(runs)
	figure("ms for 10,000 VPAs / 50,000 containers", float64(runs[3].Microseconds())/1e3)
	runtime.KeepAlive(kept)
}

var names = map[vpamodel.ResourceName]string{
	vpamodel.ResourceCPU:    "ns per CPU sample",
	vpamodel.ResourceMemory: "ns per memory sample",
}

// figure prints one line that the benchmark beside it reads: the name, a tab, the number.
func figure(name string, number float64) {
	fmt.Printf("%s\t%f\n", name, number)
}

func samples() {
	c, n, count := live(0, 10*time.Minute), newNoise(7), 2_000_000
	values := make([]int64, 4096)
	for i := range values {
		values[i] = n.below(1_000_000_000)
	}
	for _, resource := range []vpamodel.ResourceName{vpamodel.ResourceCPU, vpamodel.ResourceMemory} {
		at, begin := start.Add(days*24*time.Hour), time.Now()
		for i := range count {
			at = at.Add(100 * time.Millisecond)
			value := values[i%len(values)]
			if resource == vpamodel.ResourceCPU {
				value /= 1_000_000
			}
			c.add("pod-0", at, value, resource)
		}
		figure(names[resource], float64(time.Since(begin).Nanoseconds())/float64(count))
	}
}
