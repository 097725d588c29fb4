//! The command line of the simulation.
fn main() {
    let o = postrider_simulation::world::life::live(
        std::env::args().nth(1).unwrap().parse().unwrap(),
        None,
    )
    .unwrap();
    println!(
        "{} h {} attempts {} crashes hash {:x}",
        o.lived_ms / 3600000,
        o.attempts,
        o.crashes,
        o.hash
    );
    for v in &o.violations {
        println!("{} {:?} {:?} {:?}", v.what, v.at, v.delivery, v.destination);
    }
    println!("{}", o.trace);
}
