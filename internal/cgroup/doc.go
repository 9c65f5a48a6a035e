// Package cgroup puts processes under limits with Linux control groups, v1, v2 and both at once,
// behind one typed interface.
//
// Detect says what is mounted and writable, or in words why nothing is. Hierarchy.Subtree makes a
// directory of ours, such as plimsoll/node-1, in every mounted hierarchy and turns the controllers
// on down to it. Subtree.Create makes a Group with limits on processor time, memory and processes;
// Subtree.LimitMemory bounds what all groups of a subtree use together. A Group takes processes,
// reads its limits, usage and out-of-memory kills back, kills all it holds, and is removed.
// Group.Control opens a group to change it while it runs: quota, weight, burst, freezing,
// reclaiming memory, pressure. Group.Reader keeps its counters open for reading them every second.
//
// A machine has one hierarchy a controller (v1), one for all (v2), or v1 hierarchies and a v2 one
// without controllers (hybrid). A group is a directory of the same name in each of them, and a
// process is put in all. Where v2 is there a process can be born in its group (Group.FD) and the
// kernel kills the whole group in one step; with v1 alone the group is frozen, every process in it
// is sent SIGKILL, and it is thawed, until it is empty: a fork bomb cannot outrun that.
//
// What it does not do: it starts no process, keeps no state besides paths, and never touches a
// directory outside its subtree, but for turning controllers on in the directories above it (v2). A
// task that runs as root can leave its group.
//
// Kill, Remove, Freeze and Reclaim wait, at most until their context ends; the rest are a few reads
// and writes of kernel files. It owns no goroutine, but for one a Control while Reclaim is under
// way, because the kernel takes its own time for that. A Trigger blocks a thread. The cost of a
// group is one directory a hierarchy, and what Control and Reader keep open. Values are safe for
// concurrent use, Reader and Trigger by one caller at a time. A limit whose controller is missing
// is left out, and Hierarchy.Missing says so once.
//
// The kernel's documents cgroup-v1 and cgroup-v2 are the design. internal/executor starts tasks
// with it, internal/sample measures them.
package cgroup
