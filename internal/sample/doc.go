// Package sample measures a machine and the task groups on it, a thousand of them every second, for
// next to nothing.
//
// New opens the machine's counters below /proc. Track adds a control group, whose counters are
// opened once and stay open, and Drop takes it away. Sweep reads everything and says, of the time
// since the sweep before, how much processor time each group and the machine used, how long groups
// were throttled, and what memory is in use now. The time is an argument.
//
// What it does not do: it decides nothing, starts nothing and keeps no history. A value that could
// not be read, or whose counter went backwards, or that has no sweep before it, is not known (its
// Known is false); it is never negative and never guessed. A group that was removed is in one more
// sweep as Gone, and then it is dropped.
//
// Memory of a group is what is charged to it less its page cache, which the kernel drops when it
// needs to: a task that reads a large file does not use memory, and acting on it would free none
// (kubernetes/kubernetes#43916). memory.stat tells the page cache, but reading it costs more than
// twice what the three other files of a group cost together. So it is read when the memory in use
// has moved by a sixteenth, and every RefreshSweeps sweeps, of different groups each time. What a
// task may hide by that is page cache that it exchanged for memory of its own, at the same total,
// within as many sweeps. Processor time of a sweep of 1,000 idle groups on a machine with 2 virtual
// processors, median of three: without memory.stat 2.4 ms, with an eighth of it 3.3 ms, with a
// quarter 3.9 ms, with all of it each time 9.2 ms; os.ReadFile of three files 25 ms, and 18,000
// allocations. Pressure of every group adds 6 ms.
//
// Memory of the machine is the kernel's MemAvailable, which counts page cache in the same way.
// Processor time of the machine is what was not idle, not waiting for a disk, and not stolen by the
// hypervisor.
//
// It owns the open files (four a group, six with pressure; an eighth of the process's descriptors
// at most, and the files of groups beyond that are opened for each sweep), no goroutine and no
// lock: one caller at a time. A sweep allocates nothing, and costs in proportion to the groups
// (BenchmarkSweep).
package sample
