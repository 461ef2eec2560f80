// Package sim has no code of its own, only tests: a simulator of a group of brokers. It runs the real store, tables, request
// handlers and replication on model disks (vfstest), over a model network, in virtual time (testing/synctest), by random
// schedules of sends, pulls, commits, kills, power cuts, partitions and role switches, and looks on from above: whatever
// was acknowledged, delivered or committed is noted, and no promise of docs/never-backwards.md may be broken.
//
//	go test ./ha/sim                                  1,000 seeds, 300 acting and 400 troubled ones, those that ever failed, and the proof that it bites
//	SIM_SEEDS=1000000 go test -timeout 0 ./ha/sim     a million
//	SIM_SEEDS=1 SIM_FROM=4711 go test ./ha/sim        one, again
//	-run TestActs                                     acting ones: an operator resets offsets and deletes topics, messages are delayed
//	-run TestTroubles                                 troubled ones: disks fail and are full, networks let things through one way, roles are configured
//	SIM_DAMAGE=1                                      power cuts may leave logs damaged in their midst
//	SIM_LOG=1                                         also what the brokers log
//	GOMAXPROCS=1                                      a seed's play is the same each time, as a rule
//
// What happens at the same moment of virtual time happens in an order that is not the seed's: goroutines run on several
// processors, and Go draws lots in select and for maps. The simulator's own parts avoid such moments, and what one host does changes no
// delay of another's: with one processor nine plays of ten are the same line for line, with two one of seven.
//
//	network_test.go   hosts, connections, asks; they can be slow, cut, partitioned
//	disk_test.go      the disk of a process that can die at any operation
//	broker_test.go    a process: its parts, its start, its three kinds of end
//	group_test.go     its role in the group, wired as package broker does
//	plain_test.go     a slave as simple as a Java one, which compares nothing
//	client_test.go    producers and consumers
//	ledger_test.go    the view from above, and the promises
//	schedule_test.go  what happens in a seed
//	acts_test.go      what acting seeds have more
//	trouble_test.go   what troubled seeds have more
//	story_test.go     stories that are told between other things
//	handover_test.go  what a slave says while it becomes the master, and a send that waits meanwhile
//	flush_test.go     what slaves have that their master had not flushed
//	roles_test.go     roles that an operator gives by the configuration
//	weak_test.go      protections, and how each is switched off
//	sim_test.go       the seeds, those that ever failed, and the proof that the simulator bites
package sim
