// Package queuerule chooses the queue of a job: by the placement rules of a queue file, and by the
// access lists of the queues. The meaning of both is YuniKorn's.
//
//	set, err := queuerule.Compile(&config)      // once for each configuration
//	choice, err := set.Place(job, find)         // find looks a queue up by its path
//
// The rules are asked in their order. The first that names a leaf which the owner may submit to and
// which does not drain wins. The leaf need not exist if the rule has create. If no rule wins, the
// job goes to root.default under the same conditions. Otherwise it is refused, with the answer of
// each rule. A rule that cannot be followed, such as one with an unknown name, ends the search: the
// job is refused. Without rules a job names its queue, and a job that names none goes to
// root.default.
//
// Where a queue has an access list, owners that no list names may submit to nothing: a queue
// without a list grants nothing, and a list grants its queue and all queues below. An owner who may
// administer a queue may also submit to it. Without any list everybody may submit everywhere.
//
// The package owns nothing, and keeps no queue. Package state calls it for each submit, and package
// scheduler for dry runs. Compile costs O(configuration); the programs of its regular expressions
// are bounded. Place costs O(rules × depth), and each expression is linear in the name that it is
// matched with.
package queuerule
