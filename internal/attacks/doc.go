// Package attacks attacks Plimsoll from outside. Its tests start the built program as a fleet of
// real processes: a coordinator, a gateway and an agent. Each has a control group of 2 GiB and
// 1,024 descriptors. The tests then make the attacks that docs/security.md says it withstands.
//
// During the attacks, a canary submits a job and reads it back each second, and four tasks sleep.
// The rules are the same for every attack: the processes stay the same, the canary is answered,
// and the sleeping tasks stay in their first attempt. At the end the processes are killed and
// started again, and must be ready within 30 s.
//
// The package owns no code of the program. `make attacks` runs every attack in full. `make test`
// runs a short form of each, without measuring the canary's time. A run takes as long as its
// attacks: some seconds each in the short form, and up to a minute in full.
package attacks
