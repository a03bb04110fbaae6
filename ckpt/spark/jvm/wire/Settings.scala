package ckpt.spark.wire

import java.net.URLDecoder
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Locale
import java.util.concurrent.TimeUnit

import scala.util.Try

import org.apache.spark.{SparkConf, SparkEnv, SparkException}
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/**
 * What the session configuration says about this provider; executors find it in `StateStoreConf.sqlConfs`. A store that
 * is opened without a session, as in Spark's own suites, finds it in Spark's configuration.
 */
object Settings {
  private val Prefix = "spark.sql.streaming.stateStore.ckpt."
  val Address: String = Prefix + "address"
  val Python: String = Prefix + "python"
  val Sidecar: String = Prefix + "sidecar"
  val Token: String = Prefix + "sidecar.token"
  val CaFile: String = Prefix + "sidecar.ca"
  val Timeout: String = Prefix + "timeout"
  val Scrapes: String = Prefix + "metrics"
  val Memory: String = Prefix + "memory"
  val Recovery: String = Prefix + "recovery"
  val Rebalance: String = Prefix + "rebalance.mode"
  private val Known = Set(Address, Python, Sidecar, Token, CaFile, Timeout, Scrapes, Memory, Recovery, Rebalance)
  private val FromEnvironment = "env:"
  private val HostAndPort = "\\[?([^\\[\\]]+)\\]?:([0-9]{1,5})".r
  private val MostPort = 65535
  private val AnAddress = "(?s)[A-Za-z][\\w+.-]*://([^?]*)(?:\\?(.*))?".r
  private val Password = "(?s)[^:/]*:.*@.*"
  private val SecretWords = Seq("password", "secret", "token", "key_file", "credential")
  private val WhereSecretsAre = Set("password_file", "password_env")
  private val DefaultShareOfHeap = 0.4

  def sidecar(conf: StateStoreConf): SidecarSettings = {
    conf.sqlConfs.keysIterator.find(name => name.startsWith(Prefix) && !Known(name)).foreach { name =>
      val known = Known.toSeq.sorted.mkString(", ")
      throw new SparkException(s"there is no setting $name; those of the ckpt state store are $known")
    }
    if (find(conf, Address).exists(holdsASecret)) throw new SparkException(
      s"$Address holds a secret, which Spark shows in its UI; change it, put the address into an environment variable " +
        "on every executor, and set env:NAME")
    val running = find(conf, Sidecar).map(endpoint(conf, _))
    SidecarSettings(
      address = if (running.isDefined) "" else secret(conf, Address).getOrElse(throw new SparkException(
        s"the ckpt state store needs the address of a backend: set $Address, or use ckpt.spark.configure()")),
      python = find(conf, Python).getOrElse("python3"),
      running = running,
      metrics = find(conf, Scrapes),
      timeoutMs = timeoutMs(find(conf, Timeout).getOrElse("120s")))
  }

  /** Whether an address has a part that must not be shown: what `ckpt.contract.addresses.Address` replaces by `***` in Python. */
  def holdsASecret(address: String): Boolean = address match {
    case AnAddress(location, query) => location.matches(Password) || Option(query).toSeq.flatMap(_.split('&')).exists { option =>
      val (name, value) = option.span(_ != '=')
      isSecret(decoded(name), decoded(value.drop(1)))
    }
    case _ => false
  }

  private def isSecret(name: String, value: String): Boolean = {
    val isJson = value.stripLeading.startsWith("{") || value.stripLeading.startsWith("[")
    val words = (name + (if (isJson) value else "")).toLowerCase(Locale.ROOT)
    !WhereSecretsAre(name) && SecretWords.exists(words.contains(_))
  }

  private def decoded(text: String): String = Try(URLDecoder.decode(text, UTF_8)).getOrElse(text)

  /** Whether a store is read when it is opened, or key by key when they are asked for. */
  def lazyRecovery(conf: StateStoreConf): Boolean = find(conf, Recovery).map(_.trim) match {
    case None | Some("eager") => false
    case Some("lazy") => true
    case Some(text) => throw new SparkException(s"$Recovery is '$text'; it is either eager or lazy")
  }

  /** Whether keys are placed by the tables of the rebalancer. */
  def routes(conf: StateStoreConf): Boolean = find(conf, Rebalance).map(_.trim) match {
    case None | Some("off") => false
    case Some("apply") => true
    case Some(text) => throw new SparkException(s"$Rebalance is '$text'; it is either off or apply")
  }

  /** How many bytes the stores of an executor may hold in memory together; what is more is spilled to local disk. */
  def memoryBytes(conf: StateStoreConf): Long = find(conf, Memory).map(_.trim) match {
    case None => (Runtime.getRuntime.maxMemory * DefaultShareOfHeap).toLong
    case Some("off") => Long.MaxValue
    case Some(text) =>
      try JavaUtils.byteStringAsBytes(text)
      catch {
        case _: NumberFormatException => throw new SparkException(
          s"$Memory is '$text', which is no amount of memory; give one like 512m or 4g, or off for no limit")
      }
  }

  private def endpoint(conf: StateStoreConf, text: String): TcpEndpoint = text match {
    case HostAndPort(host, port) if port.toInt <= MostPort =>
      if (!find(conf, Token).forall(_.startsWith(FromEnvironment))) throw new SparkException(
        s"$Token holds a token, which Spark shows in its UI; change it, put it into an environment variable on every " +
          "executor, and set env:NAME")
      val token = secret(conf, Token).getOrElse(throw new SparkException(
        s"$Sidecar needs $Token, the name of an environment variable as env:NAME that holds the sidecar's token"))
      TcpEndpoint(host, port.toInt, token, find(conf, CaFile))
    case _ => throw new SparkException(
      s"$Sidecar is HOST:PORT of a sidecar that runs, with a port up to $MostPort, and not $text")
  }

  private def timeoutMs(text: String): Long = {
    val ms = try JavaUtils.timeStringAs(text, TimeUnit.SECONDS) * 1000
    catch { case e: NumberFormatException => throw new SparkException(s"$Timeout is a time such as 120s, not $text", e) }
    if (ms < 1000) throw new SparkException(s"$Timeout is at least 1s, not $text")
    ms
  }

  /** A setting, or the value of the environment variable that `env:NAME` names: Spark's UI shows settings. */
  private def secret(conf: StateStoreConf, setting: String): Option[String] = find(conf, setting).map { text =>
    if (!text.startsWith(FromEnvironment)) text
    else {
      val name = text.drop(FromEnvironment.length)
      Option(System.getenv(name)).filter(_.nonEmpty).getOrElse(throw new SparkException(
        s"$setting is $text, but the environment variable $name is not set on this executor; " +
          "set it on every executor before its JVM starts"))
    }
  }

  private def find(conf: StateStoreConf, setting: String): Option[String] =
    conf.sqlConfs.get(setting).orElse(Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf).getOption(setting))
}
