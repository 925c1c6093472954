# A worker and a client over Gearman::Client and Gearman::Worker. See main.rs for what they do and
# print.
use strict;
use warnings;
use Gearman::Client;
use Gearman::Task;
use Gearman::Worker;
use Storable ();

$| = 1;
my ($role, $host, $port, $prefix, $own) = @ARGV;
print "version: Gearman::Client $Gearman::Client::VERSION\n";
my @servers = ("$host:$port");

# This library's worker freezes what a function dies of, and says both WORK_EXCEPTION and WORK_FAIL.
sub thawed {
    my ($text) = @_;
    return $text =~ /^\x05/ ? ${ Storable::thaw($text) } : $text;
}

if ($role eq "worker") {
    my $worker = Gearman::Worker->new(job_servers => \@servers);
    $worker->register_function("$prefix-reverse", sub { scalar reverse $_[0]->arg });
    $worker->register_function(
        "$prefix-steps",
        sub {
            my $job = shift;
            $job->set_status(1, 2);
            $worker->send_work_data($job, "part");
            return "end";
        }
    );
    $worker->register_function("$prefix-boom", sub { die "boom\n" });
    print "ready\n";
    $worker->work while 1;
}

my $client = Gearman::Client->new(job_servers => \@servers, exceptions => 1);
my $result = $client->do_task("$prefix-reverse", "hello");
print "foreground: ", ref $result ? $$result : "failed", "\n";

my $handle = $client->dispatch_background("$prefix-reverse", "hello");
my $known = 1;
for (1 .. 1000) {
    $known = $client->get_status($handle)->known;
    last unless $known;
    select undef, undef, undef, 0.01;
}
print "background: ", $known ? "not done" : "done", "\n";

my @heard;
my %events = (
    on_status    => sub { push @heard, "$_[0]/$_[1]" },
    on_data      => sub { push @heard, ${ $_[0] } },
    on_complete  => sub { push @heard, ${ $_[0] } },
    on_exception => sub { push @heard, thawed($_[0]) },
);
for my $function ("steps", "boom") {
    @heard = ();
    my $set = $client->new_task_set;
    $set->add_task("$prefix-$function", "hello", { %events });
    $set->wait(timeout => 30);
    chomp @heard;
    print $function eq "boom" ? "exception" : $function, ": @heard\n";
}

for ("low", "normal", "high") {
    my $priority = $_;
    $client->dispatch_background(Gearman::Task->new($own, \$priority, { priority => $priority }));
}
print "priorities: sent\n";
my %handles;
for my $payload ("first", "second") {
    $handles{ $client->dispatch_background($own, $payload, { uniq => "u" }) } = 1;
}
print "unique: ", keys %handles == 1 ? "one" : "two", "\n";
