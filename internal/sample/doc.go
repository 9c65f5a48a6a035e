// Package sample measures a machine and its task groups cheaply: a thousand groups every second.
//
// New opens the machine's counters below /proc. Track adds a control group, whose counters are
// opened once and stay open; Drop removes it. Sweep reads all counters. It reports, for the time
// since the previous sweep, the processor time of each group and of the machine, and how long
// groups were throttled. It also reports the memory in use now. The time is an argument:
//
//	s, err := sample.New(sample.Config{})
//	err = s.Track(taskID, group)
//	var out sample.Sweep
//	err = s.Sweep(now, &out) // again every second; out is reused
//
// The package decides nothing, starts nothing and keeps no history. A value is not known (its
// Known is false) if it could not be read, its counter went backwards, or no sweep precedes it.
// Values are never negative and never guessed. A group that was removed is in one more sweep as
// Gone, and is then dropped.
//
// The memory of a group is the memory charged to it less its page cache, which the kernel drops
// when necessary. A task that reads a large file does not use memory, and acting on it would free
// none (kubernetes/kubernetes#43916).
//
// The page cache is in memory.stat, but reading that costs more than twice as much as the three
// other files of a group together. So it is read when the memory in use has moved by a sixteenth,
// and every RefreshSweeps sweeps, for different groups each time. Within that many sweeps, a task
// can hide page cache that it exchanged for memory of its own at the same total.
//
// Processor time of a sweep of 1,000 idle groups, on a machine with 2 virtual processors, median
// of three:
//
//   - without memory.stat 2.4 ms; with an eighth of it 3.3 ms; with a quarter 3.9 ms;
//   - with all of it each time 9.2 ms;
//   - os.ReadFile of three files 25 ms, and 18,000 allocations.
//
// Pressure of every group adds 6 ms.
//
// The memory of the machine is the kernel's MemAvailable, which treats page cache in the same way.
// Its processor time is the time that was not idle, not waiting for a disk, and not stolen by the
// hypervisor.
//
// The package owns the open files, no goroutine and no lock: one caller at a time. A group has
// four files, six with pressure. They take at most an eighth of the process's descriptors; the
// files of further groups are opened for each sweep. A sweep allocates nothing, and its cost is
// proportional to the groups (BenchmarkSweep).
package sample
