# A task that is submitted and a worker that does it, with nothing but Ruby's standard library:
# heartbeats, retries, a stop that finishes what runs, and a server that may be away meanwhile.
#
#   ruby worker.rb submit ADDRESS [SECONDS]   submits a mail that takes so long to send
#   ruby worker.rb work                       sends mails until SIGTERM or SIGINT
#
# The server is SPINDLE_URL, else http://127.0.0.1:7420, and SPINDLE_TOKEN says who asks.
require "json"
require "net/http"
require "securerandom"

API = URI("#{ENV.fetch("SPINDLE_URL", "http://127.0.0.1:7420")}/api/v1/")

# An answer of the server that is no success.
class Refusal < StandardError
  attr_reader :status

  def initialize(status, text)
    super("status #{status}: #{text}")
    @status = status
  end

  # The server is away or busy: the same request may succeed later.
  def passes? = status == 429 || status >= 500

  # The lease has ended: the job was cancelled, deleted, or given to another worker.
  def lost? = [409, 410].include?(status)
end

AWAY = [SystemCallError, SocketError, IOError, Net::OpenTimeout, Net::ReadTimeout].freeze

# Sends one request. The answer's JSON, or nil if there is no content.
def post(path, body, headers = {})
  request = Net::HTTP::Post.new(API + path, { "Content-Type" => "application/json" }.merge(headers))
  request["Authorization"] = "Bearer #{ENV["SPINDLE_TOKEN"]}" if ENV["SPINDLE_TOKEN"]
  request.body = JSON.generate(body)
  # A lease waits 5 s for a job; every other answer comes sooner.
  options = { use_ssl: API.scheme == "https", open_timeout: 10, read_timeout: 30, max_retries: 0 }
  response = Net::HTTP.start(API.hostname, API.port, **options) { |http| http.request(request) }
  raise Refusal.new(response.code.to_i, response.body) if response.code.to_i >= 400

  JSON.parse(response.body) unless response.body.to_s.empty?
end

# Repeats a request, with growing pauses, until the server has answered or time is up.
def persist(seconds = 60)
  deadline = now + seconds
  pause = 0.1
  begin
    yield
  rescue Refusal, *AWAY => error
    raise if (error.is_a?(Refusal) && !error.passes?) || now + pause > deadline

    sleep pause
    pause = [2 * pause, 5].min
    retry
  end
end

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Adds one job, however often it is sent: the key tells the server that it is the same.
def submit(address, seconds)
  job = {
    queue: "mail",
    payload: { to: address, seconds: seconds },
    ttr_ms: 3000, # how soon the job of a worker that was killed runs again
    fails_max: 3, # two retries, after half a second and a second
    backoff: { base_ms: 500, factor: 2 },
  }
  key = SecureRandom.uuid
  puts persist { post("jobs", job, "Idempotency-Key" => key) }.fetch("id")
end

# The task. It ends early when its job is no longer this worker's.
def send_mail(mail, lost)
  raise "no address: #{mail["to"]}" unless mail["to"].include?("@")

  deadline = now + mail["seconds"].to_f
  sleep 0.05 while now < deadline && !lost.call
  { sent_to: mail["to"] }
end

# Extends the lease at each third of its time, while the block runs. The block is given a function
# that says whether the lease has ended all the same.
def keeping_lease(job)
  is_lost = false
  heart = Thread.new do
    until is_lost
      sleep job["lease_ms"] / 3000.0
      begin
        post("leases/#{job["lease_token"]}/extend", { ttr_ms: job["lease_ms"] })
      rescue Refusal => refusal
        is_lost = refusal.lost?
      rescue *AWAY
        # The next beat tries again.
      end
    end
  end
  yield -> { is_lost }
ensure
  heart.kill
end

# Does one job, and reports its end until the server knows it.
def perform(job)
  outcome, report = keeping_lease(job) do |lost|
    result = send_mail(job["payload"], lost)
    return warn("job #{job["id"]} is no longer ours") if lost.call

    ["complete", { result: result }]
  rescue StandardError => error # the server tries the job again after its backoff
    ["fail", { message: error.message[0, 4096], code: error.class.name[0, 64] }]
  end
  persist { post("leases/#{job["lease_token"]}/#{outcome}", report) }
rescue Refusal, *AWAY => error
  # 409 may also say that an earlier report arrived, and only its answer was lost.
  warn "job #{job["id"]}: #{outcome}: #{error.message}"
end

def work
  is_stopping = false
  %w[TERM INT].each { |name| trap(name) { is_stopping = true } }
  until is_stopping
    begin
      # Not ended by the stop: a job that comes at that moment is done, too.
      job = post("lease", { queues: ["mail"], wait_s: 5 })
      perform(job) if job
    rescue Refusal, *AWAY => error
      raise if error.is_a?(Refusal) && !error.passes?

      warn "#{error.message}; trying again"
      sleep 1
    end
  end
end

case ARGV
in ["submit", address] then submit(address, 0)
in ["submit", address, seconds] then submit(address, Float(seconds))
in ["work"] then work
else abort "usage: worker.rb submit ADDRESS [SECONDS] | worker.rb work"
end
