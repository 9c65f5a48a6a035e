// Package attacks attacks Plimsoll from outside. Its tests start the built program as a fleet of
// real processes, a coordinator, a gateway and an agent, each in a control group of 2 GiB with
// 1,024 descriptors, and do to it what docs/security.md says that it withstands.
//
// Beside the attacks a canary submits a job and reads it back each second, and four tasks sleep.
// The rules are the same for every attack: the processes are the same all along, the canary is
// answered, and the tasks that sleep are still in their first attempt. At the end the processes are
// killed and started again, and must be ready within 30 s.
//
// It owns no code of the program. `make attacks` runs every attack in full; `make test` runs a
// short form of each, without the measure of the canary's time. A run takes as long as its attacks,
// some seconds each in the short form and up to a minute in full.
package attacks
